"""`--sanitize`: NVIDIA's compute-sanitizer tools on one call of a correct project.

A run ends in a status with a reason; it never decides a verdict (tools have false positives, and the tool
runs inside the student's process, which could silence it).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import SandboxError
from harness.judge.arena import Arena, Layout
from harness.judge.problem import Problem
from harness.judge.sanitizer_report import MOST_BYTES, Report, read_report
from harness.judge.worker_client import Failed, WorkerClient
from harness.judge.worker_job import Wrapper
from harness.outcome import Cause
from harness.records import SanitizerRun
from harness.records.evidence import SANITIZER_TOOLS, SanitizerTool
from sandboxes.scratch import CollectError

TOOL_WALL_S: Final = 120.0  # protocols.md
LEAST_ELEMENTS: Final = 1024
"""Of all operands: below this a workload is trivial (one block, nothing to race)."""
_PROGRAM: Final = "compute-sanitizer"
_LAUNCHER: Final = "TreeLauncherSubreaper"
_LOG: Final = "sanitizer.txt"
_PRINTED: Final = 50

StartUnder = Callable[[Wrapper, float], WorkerClient]
"""Starts a worker of the student's under a program, with a wall limit in seconds."""


@dataclass(frozen=True)
class Sanitizer:
    """The program and the directory that it needs."""

    program: Path
    home: Path
    """Its launcher and the libraries that it injects."""

    def wrapper(self, tool: SanitizerTool) -> Wrapper:
        """How a worker is started under it."""
        return Wrapper(
            argv=(
                str(self.program),
                *("--tool", tool),
                *("--log-file", "{scratch}/" + _LOG),
                *("--print-limit", str(_PRINTED)),
                *("--launch-timeout", "60"),
                # A failed API call is the op's to handle, and the check's to judge.
                *("--report-api-errors", "no"),
                # The copies that it works on are made from memory that the judge's process wrote.
                *(("--check-api-memory-access", "no") if tool == "initcheck" else ()),
            ),
            readable=(self.home,),
            environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        )


def find_sanitizer(cuda_root: Path | None, environment: Mapping[str, str] = os.environ) -> Sanitizer | str:
    """The program, or why it cannot be used.

    Looked for on PATH, in CUDA_HOME and in `cuda_root`; the pip wheels before 13.1 have the program without
    its launcher, and can start nothing.
    """
    roots = [Path(environment["CUDA_HOME"])] if environment.get("CUDA_HOME") else []
    roots += [cuda_root] if cuda_root is not None else []
    on_path = shutil.which(_PROGRAM, path=environment.get("PATH", ""))
    places = [Path(on_path)] if on_path else []
    places += [root / folder / _PROGRAM for root in roots for folder in ("compute-sanitizer", "bin")]
    found = [place.resolve() for place in places if place.is_file()]
    for place in found:
        # In a toolkit bin/compute-sanitizer is a script that runs the program in ../compute-sanitizer.
        for home in (place.parent, place.parent.parent / _PROGRAM):
            program = home / _PROGRAM
            if program.is_file() and (home / _LAUNCHER).is_file():
                return Sanitizer(program, home)
    if found:
        return f"{found[0]} is incomplete: it has no {_LAUNCHER} beside it and cannot start a program"
    return f"{_PROGRAM} is neither on PATH nor in a CUDA toolkit (package cuda-sanitizer)"


def smallest(problems: Sequence[Problem]) -> Problem:
    """The smallest problem that is not trivial; the largest where all are."""

    def elements(problem: Problem) -> int:
        return sum(slot.size // slot.dtype.itemsize for slot in Layout(problem).slots)

    ordered = sorted(problems, key=elements)
    return next((p for p in ordered if elements(p) >= LEAST_ELEMENTS), ordered[-1])


def absent_runs(reason: str) -> tuple[SanitizerRun, ...]:
    """Of every tool, where the program is not there."""
    return tuple(SanitizerRun(tool=tool, status="not_present", message=reason) for tool in SANITIZER_TOOLS)


def sanitize(start: StartUnder, sanitizer: Sanitizer, problem: Problem) -> tuple[SanitizerRun, ...]:
    """Run every tool. Raises SandboxError and DeviceError when something of ours fails."""
    return tuple(run_tool(start, sanitizer, tool, problem) for tool in SANITIZER_TOOLS)


def run_tool(start: StartUnder, sanitizer: Sanitizer, tool: SanitizerTool, problem: Problem) -> SanitizerRun:
    """One call of the project in a fresh worker under one tool, ended in an orderly way."""
    began = time.monotonic()
    worker = start(sanitizer.wrapper(tool), TOOL_WALL_S)
    failure: Failed | SandboxError | None = None
    try:
        try:
            worker.load()
            _call_once(worker, problem)
        except (Failed, SandboxError) as failed:  # the tool could not start it, say: recorded below
            failure = failed
        facts = worker.end(max(1.0, TOOL_WALL_S - (time.monotonic() - began)))
        text = _log_of(worker)
    finally:
        worker.close()
    late = facts is None or facts.status == "wall_timeout"
    late = late or (isinstance(failure, Failed) and failure.finding.cause is Cause.WALL_TIMEOUT)
    why = None if failure is None else str(failure)
    return _judged(tool, read_report(text), late, why, problem.label, time.monotonic() - began)


def _call_once(worker: WorkerClient, problem: Problem) -> None:
    layout = Layout(problem)
    worker.plan(layout, 1, dict(problem.workload.scalars))
    arena = Arena(layout, [problem.make_inputs()], 0xFF, worker.transport)
    try:
        worker.trace(arena, "under compute-sanitizer", watch="copies")
    finally:
        arena.close()


def _log_of(worker: WorkerClient) -> str:
    """What the tool wrote, bounded; nothing where there is no such file."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            files = worker.collect([_LOG], Path(folder))
        except CollectError:
            return ""  # whatever lies there, no summary can be read: not clean
        if not files:
            return ""
        with files[0].open("rb") as file:
            return file.read(MOST_BYTES).decode(errors="replace")


def _judged(
    tool: SanitizerTool, report: Report, late: bool, failure: str | None, label: str, wall_s: float
) -> SanitizerRun:
    """The status: what was found counts even where the run broke off; clean needs an orderly end."""
    found = report.total if report.total else len(report.findings)
    why = report.trouble or failure
    if late:
        status, why = "timed_out", why or f"no end within {TOOL_WALL_S:.0f} s"
    elif found:
        status = "findings"
    elif report.total == 0 and why is None:
        status = "clean"
    else:
        status, why = "not_measured", why or "the tool wrote no summary"
    return SanitizerRun(
        tool=tool,
        status=status,  # type: ignore[arg-type]
        total=report.total,
        findings=report.findings if status in ("findings", "timed_out") else (),
        message=None if why is None else why[:300],
        workload=label,
        wall_s=wall_s,
    )
