"""Builds a project for one target: Project + Sandbox -> Built.

Owns: the order of validation, staging, compiling and caching. Does not own: any rule about
build.toml, files or flags, nor running compilers (the modules it calls), nor loading what was built.
Invariant: no compiler starts before every check has passed, and none runs outside the sandbox.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harness.builder.abi import abi_verdict
from harness.builder.architectures import code_names
from harness.builder.build_toml import check, read_build_toml
from harness.builder.cache import BuildCache, Entry
from harness.builder.compiling import Compiled, compile_layout
from harness.builder.layout import Layout, plan_layout
from harness.builder.log import missing_header
from harness.builder.toolchain import Toolchain
from harness.builder.units import named_architectures
from harness.outcome import Cause
from harness.records import BuildResult, Finding, Project, Target, digest_of
from sandboxes.job import Limits, Sandbox

RECIPE: Final = 1
"""Part of every key: raise it when the same project would be built differently."""
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
    jobs: int = 1,
    wall_s: float = 600.0,
    memory_bytes: int = 8 << 30,
) -> Built:
    """Build `project` for `target`, or take the build from `cache`.

    What is wrong with the project stands in the result's finding; SandboxError and HarnessBug are
    raised. A wrong build.toml or layout is not cached (it costs no compiler), nor is a build that
    ran into a limit. `log` receives the compilers' output under a header.
    """
    request = _Request(project, target, toolchain, log, time.monotonic())
    store = BuildCache(cache)
    entry = store.load(request.key)
    if entry is not None:
        return request.from_cache(entry)
    layout = _plan(project, target, toolchain)
    if isinstance(layout, Finding):
        return request.refused(layout)
    missing = toolchain.missing(target)
    if missing is not None:
        return request.refused(Finding(cause=Cause.NO_TOOLCHAIN, message=missing))
    with store.lock(request.key):
        entry = store.load(request.key)
        if entry is not None:
            return request.from_cache(entry)
        limits = Limits(wall_s=wall_s, memory_bytes=memory_bytes)
        done = compile_layout(layout, toolchain, sandbox=sandbox, limits=limits, jobs=jobs)
        return request.compiled(layout, done, store)


def _plan(project: Project, target: Target, toolchain: Toolchain) -> Layout | Finding:
    """Everything that needs no compiler."""
    with tempfile.TemporaryDirectory(prefix="liftbench-toml-") as name:
        toml = Path(name) / "build.toml"
        for file in project.files:
            if file.path == toml.name:
                toml.write_text(file.text)
        validity = check(toml.parent)
        if validity.finding is not None:
            return validity.finding
        records = read_build_toml(toml.read_bytes())
    layout = plan_layout(project, records, target, toolchain)
    if isinstance(layout, Finding):
        return layout
    warnings = (*validity.warnings, *layout.warnings, *_machine_warnings(target, toolchain))
    return layout.model_copy(update={"warnings": warnings})


def _machine_warnings(target: Target, toolchain: Toolchain) -> list[str]:
    if target == "cpu" or not toolchain.torch_is_cpu_only:
        return []
    return [
        f"torch {toolchain.torch_version} is CPU-only: libtorch_cuda and libc10_cuda are not linked "
        f"(their symbols stay undefined), and stand-ins replace: {', '.join(toolchain.stubs)}"
    ]


@dataclass(frozen=True)
class _Request:
    """One call of `build`, and the results that it can end with."""

    project: Project
    target: Target
    toolchain: Toolchain
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
        result = entry.result.model_copy(update={"cache_hit": True, "wall_s": self._wall_s()})
        return Built(result, entry.directory)

    def refused(self, finding: Finding) -> Built:
        """Nothing was compiled."""
        self._write_log("nothing compiled", f"{finding.cause}: {finding.message}\n")
        return Built(self._result(finding), None)

    def compiled(self, layout: Layout, done: Compiled, store: BuildCache) -> Built:
        """Ninja ran: keep what may be kept."""
        done = replace(done, finding=_explained(done.finding, self.project))
        result = self._result(done.finding, layout, done)
        text = _log_text(layout, done)
        self._write_log("built now", text)
        if done.finding is not None and done.finding.cause not in _CACHED_FAILURES:
            return Built(result, None)
        files: dict[str, bytes] = {"build.log": text.encode(), "build.ninja": done.ninja.encode()}
        if done.library is not None:
            place = f"build/{layout.variant}"
            files[f"{place}/{layout.ops_name}.abi3.so"] = done.library
            files |= {f"{place}/{file.path}": file.text.encode() for file in layout.package}
        return Built(result, store.store(result, files).directory)

    def _result(
        self, finding: Finding | None, layout: Layout | None = None, done: Compiled | None = None
    ) -> BuildResult:
        facts: dict[str, object] = {}
        if layout is not None:
            names = (*code_names(layout.units.capabilities), *named_architectures(layout.units))
            facts = {
                "units": len(layout.units.units),
                "variant": layout.variant,
                "module": layout.module,
                "architectures": tuple(dict.fromkeys(names)),
                "warnings": layout.warnings,
            }
        if done is not None:
            facts["compiler_s"] = done.compiler_s
            facts["abi"] = None if done.library is None else abi_verdict(done.library)
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
                **facts,
            }
        )


def _explained(finding: Finding | None, project: Project) -> Finding | None:
    """A header that the project has but does not list was not there to be found."""
    header = None if finding is None else missing_header(finding.message)
    if finding is None or header is None:
        return finding
    name = header.rpartition("/")[2]
    unlisted = [f.path for f in project.files if f.path.rpartition("/")[2] == name]
    if not unlisted:
        return finding
    advice = f"{unlisted[0]} is in the project: is it listed in a `src` of build.toml, and its folder"
    message = f"{finding.message}\n{advice} in `include`?"
    return Finding(cause=finding.cause, message=message)


def _log_text(layout: Layout, done: Compiled) -> str:
    """The log as it is kept: when, what, warnings, then what the tools printed."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lines = [f"# compiled {now}, variant {layout.variant}, {len(layout.units.units)} units"]
    lines += [f"# warning: {warning}" for warning in layout.warnings]
    return "\n".join([*lines, done.output.rstrip(), ""])
