"""Builds a project for one target: Project + Sandbox -> Built.

No compiler starts before every check has passed, and none runs outside the sandbox.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harness.builder import metadata
from harness.builder.architectures import code_names
from harness.builder.binary.abi import abi_verdict
from harness.builder.binary.calls import binary_calls
from harness.builder.binary.device_code import with_kernels
from harness.builder.binding.boxed import boxed_warnings
from harness.builder.compiling import Compiled, compile_layout
from harness.builder.config.build_toml import check, read_build_toml
from harness.builder.failure.advice import header_advice
from harness.builder.failure.log import missing_header
from harness.builder.failure.places import refusal
from harness.builder.inline import Inlined, compiles_inline, inline_libraries
from harness.builder.layout import Layout, plan_layout
from harness.builder.reuse.cache import BuildCache, Entry
from harness.builder.toolchain import Toolchain
from harness.builder.units import named_architectures
from harness.outcome import Cause
from harness.records import BuildResult, Diagnostic, Finding, Project, Target, digest_of
from sandboxes.job import Limits, Sandbox
from sandboxes.orphans import owned_folder

RECIPE: Final = 5
"""Part of every key: raise it when the same project would be built, or its failure told, differently."""
_CACHED_FAILURES: Final = frozenset({Cause.COMPILE_ERROR, Cause.LINK_ERROR})


@dataclass(frozen=True)
class Built:
    """What became of a build.

    `directory` holds the variant's package: import `directory / result.variant / "__init__.py"` as
    a package (the module's name is free; `result.module` is the project's own), or hand `directory`
    to `kernels.get_local_kernel`. It lies in the cache, so only read it; None when the build failed.
    """

    result: BuildResult
    directory: Path | None

    @property
    def package(self) -> Path | None:
        """The folder with __init__.py, _ops.py, metadata.json and the shared library."""
        if self.directory is None or self.result.variant is None:
            return None
        return self.directory / self.result.variant


def build_key(project: Project, target: Target, toolchain: Toolchain) -> str:
    """The content key: everything that decides the bytes of a build."""
    return digest_of([RECIPE, project.digest, target, toolchain.facts(target)])


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
    """Build `project` for `target`, or take the build from `cache`.

    What is wrong with the project stands in the result's finding; SandboxError and HarnessBug are
    raised. A wrong build.toml or layout is not cached (it costs no compiler), nor is a build that
    ran into a limit. `log` receives the compilers' output under a header.
    """
    request = _Request(project, target, toolchain, sandbox, log, time.monotonic())
    store = BuildCache(cache)
    entry = store.load(request.key)
    if entry is not None:
        return request.from_cache(entry)
    layout = _plan(project, target, toolchain)
    if isinstance(layout, Finding):
        return request.refused(layout)
    missing = None if layout.jit else toolchain.missing(target)
    if missing is not None:
        return request.refused(Finding(cause=Cause.NO_TOOLCHAIN, message=missing))
    with store.lock(request.key):
        entry = store.load(request.key)
        if entry is not None:
            return request.from_cache(entry)
        limits = Limits(wall_s=wall_s, memory_bytes=memory_bytes)
        if layout.jit:
            return request.universal(layout, store, limits)
        done = compile_layout(layout, toolchain, sandbox=sandbox, limits=limits, cache=cache)
        return request.compiled(layout, done, store)


def _plan(project: Project, target: Target, toolchain: Toolchain) -> Layout | Finding:
    """Everything that needs no compiler."""
    with owned_folder("toml") as name:
        toml = Path(name) / "build.toml"
        for file in project.files:
            if file.path == toml.name:
                toml.write_text(file.text)
        validity = check(toml.parent, target)
        if validity.finding is not None:
            return validity.finding
        records = read_build_toml(toml.read_bytes())
    layout = plan_layout(project, records, target, toolchain)
    if isinstance(layout, Finding):
        return layout
    machine = [] if layout.jit else _machine_warnings(target, toolchain)
    warnings = (*validity.warnings, *layout.warnings, *machine)
    return layout.model_copy(update={"warnings": warnings})


def _machine_warnings(target: Target, toolchain: Toolchain) -> list[str]:
    if target == "cpu" or not toolchain.torch_is_cpu_only:
        return []
    stubs = ""
    if toolchain.stubs:
        stubs = f", and stand-ins replace: {', '.join(toolchain.stubs)} (see `liftbench headers cuda`)"
    return [
        f"torch {toolchain.torch_version} is CPU-only: libtorch_cuda and libc10_cuda are not linked "
        f"(their symbols stay undefined){stubs}"
    ]


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
        self._write_log("cache hit", entry.log.read_text())
        result = self._measured(entry.result, entry.library if self.target == "cuda" else None)
        result = result.model_copy(update={"cache_hit": True, "wall_s": self._wall_s()})
        return Built(self._warned(result), entry.directory)

    def _warned(self, result: BuildResult) -> BuildResult:
        """With what the source says of its binding. Not kept in the cache: it needs no compiler."""
        files = {file.path: file.text for file in self.project.files}
        found = boxed_warnings(files) if result.ok else ()
        return result.model_copy(update={"warnings": (*result.warnings, *found)}) if found else result

    def _measured(self, result: BuildResult, library: bytes | None) -> BuildResult:
        """With the figures of the kernels, where they are not there yet (no tool, a busy machine)."""
        if library is None or result.kernels is not None:
            return result
        result = with_kernels(result, library, self.toolchain, self.sandbox)
        return result.model_copy(update={"wall_s": self._wall_s()})

    def refused(self, finding: Finding) -> Built:
        """Nothing was compiled."""
        self._write_log("nothing compiled", f"{finding.cause}: {finding.message}\n")
        files = {file.path: file.text for file in self.project.files}
        lacking = finding.cause is Cause.NO_TOOLCHAIN  # of this machine: nothing in the project to point at
        return Built(self._result(finding, diagnostics=() if lacking else (refusal(finding, files),)), None)

    def universal(self, layout: Layout, store: BuildCache, limits: Limits) -> Built:
        """The package is the whole build, with the libraries that it compiles when it is imported."""
        inlined = Inlined({})
        if compiles_inline(layout):
            inlined = inline_libraries(layout, self.toolchain, sandbox=self.sandbox, limits=limits)
        result = self._result(inlined.finding, layout)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        how = f"{len(inlined.files)} libraries compiled inline" if inlined.output else "nothing to compile"
        lines = [f"# universal project, put together {now}, variant {layout.variant}: {how}"]
        text = "\n".join([*lines, *(f"# warning: {w}" for w in layout.warnings), inlined.output])
        self._write_log(how, text)
        if inlined.finding is not None and inlined.finding.cause not in _CACHED_FAILURES:
            return Built(result, None)
        files = {"build.log": text.encode()}
        if inlined.finding is None:
            files |= _variant_files(layout, inlined.files)
        return Built(result, store.store(result, files).directory)

    def compiled(self, layout: Layout, done: Compiled, store: BuildCache) -> Built:
        """Ninja ran: keep what may be kept."""
        done = _explained(done, self.project, self.target, self.toolchain)
        result = self._result(done.finding, layout, done, done.diagnostics)
        result = self._measured(result, done.library)
        text = _log_text(layout, done)
        self._write_log("built now", text)
        if done.finding is not None and done.finding.cause not in _CACHED_FAILURES:
            return Built(result, None)
        files: dict[str, bytes] = {"build.log": text.encode(), "build.ninja": done.ninja.encode()}
        if done.library is not None:
            files |= _variant_files(layout, {f"{layout.ops_name}.abi3.so": done.library})
        return Built(self._warned(result), store.store(result, files).directory)

    def _result(
        self,
        finding: Finding | None,
        layout: Layout | None = None,
        done: Compiled | None = None,
        diagnostics: tuple[Diagnostic, ...] = (),
    ) -> BuildResult:
        facts: dict[str, object] = {}
        if layout is not None:
            names = (*code_names(layout.units.capabilities), *named_architectures(layout.units))
            facts = {
                "units": len(layout.units.units),
                "variant": layout.variant,
                "module": layout.module,
                "jit": layout.jit,
                "architectures": tuple(dict.fromkeys(names)),
                "warnings": layout.warnings,
            }
        if done is not None:
            facts["compiler_s"] = done.compiler_s
            facts["abi"] = None if done.library is None else abi_verdict(done.library)
        if done is not None and done.library is not None:
            facts["calls"] = binary_calls(done.library, self.target, self.toolchain, self.sandbox)
        return BuildResult.model_validate(
            {
                "ok": finding is None,
                "finding": finding,
                "backend": self.target,
                "key": self.key,
                "cache_hit": False,
                "wall_s": self._wall_s(),
                "compiler_s": None,
                "toolchain": self.toolchain.facts(self.target),
                "diagnostics": diagnostics,
                **facts,
            }
        )


def _variant_files(layout: Layout, libraries: Mapping[str, bytes]) -> dict[str, bytes]:
    """The variant as it lies in the cache, its metadata with the digest over all other files."""
    files = {file.path: file.text.encode() for file in layout.package} | dict(libraries)
    files[metadata.NAME] = metadata.with_digest(files[metadata.NAME].decode(), files).encode()
    return {f"build/{layout.variant}/{path}": contents for path, contents in files.items()}


def _explained(done: Compiled, project: Project, target: Target, toolchain: Toolchain) -> Compiled:
    """With advice on headers that were not found, and the project's own place in the finding."""
    if done.finding is None:
        return done
    files = {file.path: file.text for file in project.files}
    torch = None if toolchain.torch_root is None else toolchain.local(toolchain.torch_root)
    told = []
    for one in done.diagnostics:
        header = missing_header(one.message) if one.kind == "missing_header" else None
        if header is not None:
            advice = header_advice(header, files, target, torch)
            one = one.model_copy(update={"advice": advice})
        told.append(one)
    first = told[0]
    lines = [done.finding.message]
    if first.line is not None and f"{first.file}" not in lines[0].partition("\n")[0]:
        lines.append(f"at {first.file}:{first.line}: {(first.source or '').strip()}")
    lines += [first.advice] if first.advice else []
    finding = Finding(cause=done.finding.cause, message="\n".join(lines))
    return replace(done, finding=finding, diagnostics=tuple(told))


def _log_text(layout: Layout, done: Compiled) -> str:
    """The log as it is kept: when, what, warnings, then what the tools printed."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lines = [f"# compiled {now}, variant {layout.variant}, {len(layout.units.units)} units"]
    lines += [f"# warning: {warning}" for warning in layout.warnings]
    return "\n".join([*lines, done.output.rstrip(), ""])
