"""Runs ninja on a layout inside a sandbox and says what happened.

Owns: the build tree on disk, the sandbox job, and whose fault a failed run is. Does not own: caching
and records (build.py). Invariant: a Finding is the project's fault, or this machine's for lack of a
tool (NO_TOOLCHAIN); what is ours is raised.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.builder.flags import library_path
from harness.builder.layout import Layout
from harness.builder.log import (
    TREE,
    Failure,
    clean,
    compiler_seconds,
    first_failure,
    missing_header,
    toolkit_gap,
)
from harness.builder.ninja_file import ninja_file
from harness.builder.toolchain import Toolchain
from harness.errors import HarnessBug, SandboxError
from harness.outcome import Cause
from harness.records import Finding, Target
from sandboxes.collect import CollectError
from sandboxes.job import ExitFacts, Job, Limits, Sandbox

_LOG_LIMIT: Final = 1 << 20
# nixpkgs' value: __DATE__ and __TIME__ must not change the bytes.
_EPOCH: Final = "315532800"


@dataclass(frozen=True)
class Compiled:
    """What came out of one run of ninja."""

    finding: Finding | None
    library: bytes | None
    """The shared library; None exactly when there is a finding."""
    output: str
    """What ninja and the compilers printed, cleaned."""
    compiler_s: float | None
    ninja: str
    """The build.ninja that ran."""


def compile_layout(
    layout: Layout, toolchain: Toolchain, *, sandbox: Sandbox, limits: Limits, jobs: int
) -> Compiled:
    """Compile and link `layout`. Raises SandboxError and HarnessBug for what is not the project's."""
    ninja = ninja_file(layout, toolchain)
    with tempfile.TemporaryDirectory(prefix="liftbench-build-") as name:
        tree = Path(name) / TREE
        _write_tree(tree, layout, ninja)
        process = sandbox.start(_job(tree, layout, toolchain, limits, jobs))
        try:
            facts = process.wait()
            if facts is None:
                raise HarnessBug("a sandbox's wait() without timeout returned before the end")
            collected, problem = {}, None
            try:
                wanted = [f"{TREE}/{library_path(layout)}", f"{TREE}/.ninja_log"]
                for path in process.collect(wanted, Path(name) / "out"):
                    collected[path.name] = path.read_bytes()
            except CollectError as error:
                problem = Finding(cause=Cause.BUILD_LIMIT, message=str(error))
        finally:
            process.close()
    library = collected.get(Path(library_path(layout)).name)
    log = collected.get(".ninja_log", b"")[:_LOG_LIMIT].decode(errors="replace")
    finding = problem or _finding(facts, layout.target, toolchain)
    if finding is None and library is None:
        finding = Finding(cause=Cause.LINK_ERROR, message="the build left no shared library")
    return Compiled(
        finding=finding,
        library=None if finding is not None else library,
        output=clean(facts.output, toolchain),
        compiler_s=compiler_seconds(log),
        ninja=ninja,
    )


def _write_tree(tree: Path, layout: Layout, ninja: str) -> None:
    for file in layout.tree:
        target = tree / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.text)
    (tree / "build.ninja").write_text(ninja)


def _job(tree: Path, layout: Layout, toolchain: Toolchain, limits: Limits, jobs: int) -> Job:
    assert toolchain.ninja is not None and toolchain.gxx is not None
    argv = [str(toolchain.ninja), "-C", f"{{scratch}}/{TREE}", "-j", str(jobs)]
    search = dict.fromkeys([str(toolchain.gxx.parent), "/usr/bin", "/bin"])
    return Job(
        role="build",
        argv=argv,
        limits=limits,
        inputs={TREE: tree},
        readable=toolchain.readable(layout.target),
        environment={
            "PATH": ":".join(search),
            "LC_ALL": "C",
            "NINJA_STATUS": "[%f/%t] ",
            "SOURCE_DATE_EPOCH": _EPOCH,
        },
    )


# --- whose fault -----------------------------------------------------------------------------


def _finding(facts: ExitFacts, target: Target, toolchain: Toolchain) -> Finding | None:
    """Why the run failed, as the project's fault; None when it did not. Raises for ours."""
    wall = f"{facts.wall_s:.0f} s"
    match facts.status:
        case "ok":
            return None
        case "wall_timeout" | "cpu_timeout":
            return Finding(cause=Cause.BUILD_TIMEOUT, message=f"the build was stopped after {wall}")
        case "oom" | "disk_limit" | "output_limit":
            what = {"oom": "memory", "disk_limit": "disk", "output_limit": "output"}[facts.status]
            return Finding(cause=Cause.BUILD_LIMIT, message=f"the build went over its {what} limit")
        case "nonzero":
            return _tool_failure(facts, target, toolchain)
        case _:
            tail = facts.output[-500:].strip()
            raise SandboxError(f"the build ended with {facts.status} (signal {facts.signal}): {tail}")


def _tool_failure(facts: ExitFacts, target: Target, toolchain: Toolchain) -> Finding:
    failure = first_failure(facts.output, toolchain)
    if failure is None:
        raise SandboxError(f"ninja failed before any step: {facts.output[-500:].strip()}")
    if failure.not_started or _unreadable(failure, toolchain):
        raise SandboxError(f"the sandbox hides part of the toolchain: {failure.message[:500]}")
    if failure.limit:
        return Finding(cause=Cause.BUILD_LIMIT, message=failure.message)
    gap = toolkit_gap(failure.message, toolchain) if target == "cuda" else None
    if gap is not None:
        message = f"this machine cannot build it: {gap}\n{failure.message}"
        return Finding(cause=Cause.NO_TOOLCHAIN, message=message)
    cause = Cause.LINK_ERROR if failure.linking else Cause.COMPILE_ERROR
    return Finding(cause=cause, message=failure.message)


def _unreadable(failure: Failure, toolchain: Toolchain) -> bool:
    """A header of the toolchain's was not found, though it is there."""
    header = missing_header(failure.message)
    if header is None or ".." in header or toolchain.torch_root is None:
        return False
    places = [toolchain.torch_root / "include", toolchain.python_include]
    if toolchain.cuda is not None:
        places.append(toolchain.cuda.include)
    return any((place / header).is_file() for place in places if place is not None)
