"""Builds a project for one target in a sandbox, or takes the build from the cache."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from harness.builder.built_library import DeviceCode, binary_calls, read_device_code
from harness.builder.cache import PTX, BuildCache, Entry, build_key
from harness.builder.check_build_toml import read_build_toml
from harness.builder.check_project import Refused, binding_warnings
from harness.builder.compiler_output import missing_header
from harness.builder.diagnostics import header_advice, refusal
from harness.builder.layout import METADATA, Layout, plan_layout, with_digest
from harness.builder.load_inline import compiles_inline, inline_libraries
from harness.builder.run_ninja import Compiled, compile_layout
from harness.builder.toolchain import Toolchain
from harness.outcome import Cause
from harness.records import BuildResult, Finding, Project, Target
from sandboxes.job import Limits, Sandbox

_CACHED_FAILURES: Final = frozenset({Cause.COMPILE_ERROR, Cause.LINK_ERROR})


@dataclass(frozen=True)
class Built:
    result: BuildResult
    package: Path | None
    """The folder with __init__.py, _ops.py, metadata.json and the shared library, in the cache: do not
    change it. None if the build failed."""
    ptx: Path | None = None
    """A folder with the PTX of each .cu file, in the cache; None if the build failed, or has none."""


def build(
    project: Project,
    target: Target,
    *,
    sandbox: Sandbox,
    toolchain: Toolchain,
    cache: Path,
    log: Path | None = None,
    wall_s: float = 600.0,
    memory_bytes: int = 8 << 30,
) -> Built:
    """Build `project` for `target`, or take the build from `cache`; `log` receives the compilers' output.

    What is wrong with the project is in the result's finding; SandboxError and HarnessBug are raised. No
    compiler starts before every check has passed. Refused projects and builds that reached a limit are not
    cached.
    """
    request = _Request(project, target, toolchain, sandbox, log, time.monotonic())
    store = BuildCache(cache)
    entry = store.load(request.key)
    if entry is not None:
        return request.from_cache(entry)
    try:
        layout = _plan(project, target, toolchain)
    except Refused as refused:
        return request.refused(refused.finding)
    missing = None if layout.jit else toolchain.missing(target)
    if missing is not None:
        return request.refused(Finding(cause=Cause.NO_TOOLCHAIN, message=missing))
    with store.lock(request.key):
        entry = store.load(request.key)
        if entry is not None:
            return request.from_cache(entry)
        limits = Limits(wall_s=wall_s, memory_bytes=memory_bytes)
        done = Compiled({})
        if not layout.jit:
            done = compile_layout(layout, toolchain, sandbox=sandbox, limits=limits, cache=cache)
        elif compiles_inline(layout):
            done = inline_libraries(layout, toolchain, sandbox=sandbox, limits=limits)
        return request.finished(layout, done, store)


def _plan(project: Project, target: Target, toolchain: Toolchain) -> Layout:
    """Raises Refused."""
    text = next((file.text for file in project.files if file.path == "build.toml"), None)
    if text is None:
        raise Refused("build.toml is missing from the top of the project", Cause.BAD_BUILD_TOML)
    records = read_build_toml(text.encode(), target)
    if isinstance(records, Finding):
        raise Refused(records.message, records.cause)
    layout = plan_layout(project, records, target, toolchain)
    warnings = list(layout.warnings)
    if target == "cuda" and toolchain.torch_cuda is None and not layout.jit:
        stubs = f", and stand-ins replace: {', '.join(toolchain.stubs)} (see `liftbench headers cuda`)"
        warnings.append(
            f"torch {toolchain.torch_version} is CPU-only: libtorch_cuda and libc10_cuda are not linked "
            f"(their symbols stay undefined){stubs if toolchain.stubs else ''}"
        )
    return layout.model_copy(update={"warnings": tuple(warnings)})


@dataclass(frozen=True)
class _Request:
    """One call of `build`, and the results that it can end with."""

    project: Project
    target: Target
    toolchain: Toolchain
    sandbox: Sandbox
    log: Path | None
    started: float

    @property
    def key(self) -> str:
        return build_key(self.project, self.target, self.toolchain)

    @property
    def _files(self) -> dict[str, str]:
        return {file.path: file.text for file in self.project.files}

    def _wall_s(self) -> float:
        return time.monotonic() - self.started

    def _write_log(self, how: str, text: str) -> None:
        if self.log is None:
            return
        head = f"# liftbench build of {self.project.digest[:12]} for {self.target}: {how}\n"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text(head + f"# key {self.key}\n" + text)

    def from_cache(self, entry: Entry) -> Built:
        """The stored result, as of this request."""
        self._write_log("cache hit", (entry.path / "build.log").read_text())
        result = entry.result
        if self.target == "cuda" and result.kernels is None and entry.package is not None and not result.jit:
            # The build could not read them, for example on a busy machine.
            for library in entry.package.rglob("*.abi3.so"):
                code = read_device_code(library.read_bytes(), self.toolchain, self.sandbox)
                result = result.model_copy(update={"kernels": code.kernels})
        result = result.model_copy(update={"cache_hit": True, "wall_s": self._wall_s()})
        return Built(result, entry.package, entry.ptx)

    def refused(self, finding: Finding) -> Built:
        """The result of a project that is not compiled."""
        self._write_log("nothing compiled", f"{finding.cause}: {finding.message}\n")
        result = self._result(finding)
        if finding.cause is not Cause.NO_TOOLCHAIN:  # there is something in the project to point at
            result = result.model_copy(update={"diagnostics": (refusal(finding, self._files),)})
        return Built(result, None)

    def finished(self, layout: Layout, done: Compiled, store: BuildCache) -> Built:
        """The result of compiling, stored unless a limit was reached."""
        if done.diagnostics:
            done = self._explained(done)
        result = self._result(done.finding, layout, done)
        for library in done.libraries.values() if not layout.jit else ():
            result = self._examined(result, library)
        made = f"{len(layout.units.units)} units, {len(done.libraries)} libraries"
        notes = [f"# variant {layout.variant}: {made}", *(f"# warning: {one}" for one in layout.warnings)]
        text = "\n".join([*notes, done.output.rstrip(), ""])
        self._write_log("built now", text)
        if done.finding is not None and done.finding.cause not in _CACHED_FAILURES:
            return Built(result, None)
        files = {"build.log": text.encode()}
        if result.ok:
            files |= _variant_files(layout, done.libraries)
            files |= {f"{PTX}/{source}.ptx": text for source, text in done.ptx.items()}
        entry = store.store(result, files)
        return Built(result, entry.package, entry.ptx)

    def _examined(self, result: BuildResult, library: bytes) -> BuildResult:
        """With what the library calls, its kernels, and warnings about the binding."""
        calls = binary_calls(library, self.target, self.toolchain)
        code = DeviceCode(None)
        if self.target == "cuda":
            code = read_device_code(library, self.toolchain, self.sandbox)
        warnings = (*result.warnings, *code.notes, *binding_warnings(self._files))
        update = {"calls": calls, "kernels": code.kernels, "warnings": warnings, "wall_s": self._wall_s()}
        return result.model_copy(update=update)

    def _explained(self, done: Compiled) -> Compiled:
        """With advice on missing headers, and the place in the project added to the finding."""
        assert done.finding is not None
        root = self.toolchain.torch_root
        torch = None if root is None else self.toolchain.local(root)
        explained = []
        for one in done.diagnostics:
            header = missing_header(one.message) if one.kind == "missing_header" else None
            if header is not None:
                advice = header_advice(header, self._files, self.target, torch)
                one = one.model_copy(update={"advice": advice})
            explained.append(one)
        first = explained[0]
        lines = [done.finding.message]
        if first.line is not None and f"{first.file}" not in lines[0].partition("\n")[0]:
            lines.append(f"at {first.file}:{first.line}: {(first.source or '').strip()}")
        lines += [first.advice] if first.advice else []
        finding = Finding(cause=done.finding.cause, message="\n".join(lines))
        return replace(done, finding=finding, diagnostics=tuple(explained))

    def _result(
        self, finding: Finding | None, layout: Layout | None = None, done: Compiled | None = None
    ) -> BuildResult:
        result = BuildResult(
            ok=finding is None,
            finding=finding,
            backend=self.target,
            key=self.key,
            cache_hit=False,
            wall_s=self._wall_s(),
            compiler_s=None if done is None else done.compiler_s,
            toolchain=self.toolchain.facts(self.target),
            diagnostics=() if done is None else done.diagnostics,
        )
        if layout is None:
            return result
        facts = {
            "units": len(layout.units.units),
            "variant": layout.variant,
            "module": layout.module,
            "jit": layout.jit,
            "architectures": layout.units.architectures,
            "warnings": layout.warnings,
        }
        return result.model_copy(update=facts)


def _variant_files(layout: Layout, libraries: Mapping[str, bytes]) -> dict[str, bytes]:
    """The variant's files in the cache; its metadata contains the digest over all others."""
    files = {path: text.encode() for path, text in layout.package.items()} | dict(libraries)
    files[METADATA] = with_digest(files[METADATA].decode(), files).encode()
    return {f"build/{layout.variant}/{path}": contents for path, contents in files.items()}
