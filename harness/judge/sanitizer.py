"""`--sanitize`: NVIDIA's compute-sanitizer tools on one call of a correct project.

A run never decides a verdict: tools have false positives, and run inside the student's process, which could
silence them. Without the tool's own summary nothing is clean.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import SandboxError
from harness.judge.guarded_buffers import Arena, Layout
from harness.judge.problem import Problem
from harness.judge.worker_client import Failed, WorkerClient, Wrapper
from harness.outcome import Cause
from harness.records import SanitizerRun
from harness.records.grade import SANITIZER_TOOLS, SanitizerFinding, SanitizerStatus, SanitizerTool
from sandboxes.scratch import CollectError

TOOL_WALL_S: Final = 120.0  # for one tool (our choice)
LEAST_ELEMENTS: Final = 1024
"""Of all operands: below this a workload is trivial (one block, nothing to race)."""
_PROGRAM: Final = "compute-sanitizer"
_LAUNCHER: Final = "TreeLauncherSubreaper"
_LOG: Final = "sanitizer.txt"
_PRINTED: Final = 50
MAX_REPORT_BYTES: Final = 1 << 20
_MAX_FINDINGS: Final = 20
_TEXT_CHARS: Final = 300
_PREFIX: Final = re.compile(r"={9} ?(.*)")
_ERRORS: Final = re.compile(r"ERROR SUMMARY: (\d{1,9}) errors?\b")
_HAZARDS: Final = re.compile(
    r"RACECHECK SUMMARY: (\d{1,9}) hazards? displayed \((\d{1,9}) errors?, (\d{1,9}) warn"
)
# `at fill(float *, long)+0x160 in fill.cu:6`, or for racecheck ` access at fill(float *)+0x100 in ...`.
_PLACE: Final = re.compile(r"(?:.*\baccess )?at (.{1,2000}?)\+0x[0-9a-f]+\b")
# About the tool and how the process ended, not about a kernel.
_TROUBLE: Final = re.compile(
    r"Error: (?!Race reported|Potential|Deadlock)|Internal Sanitizer|Internal error|Target application"
    r"|No attachable process|Failed to|Tracking kernels launched by child|Unable to|Unknown record"
)
_ASIDE: Final = re.compile(
    r"COMPUTE-SANITIZER$|(?:LEAK|RACECHECK|ERROR) SUMMARY:|Warning: (?!Race reported|Potential)|Try using "
    r"|\d+ errors? (?:were|was) |No hazards|Process ID|Created|System"
)

StartUnder = Callable[[float, Wrapper], WorkerClient]
"""Starts a student's worker with a wall-clock limit in seconds, under a program."""


@dataclass(frozen=True)
class Sanitizer:
    program: Path
    home: Path
    """The directory of its launcher and of the libraries that it injects."""

    def wrapper(self, tool: SanitizerTool) -> Wrapper:
        return Wrapper(
            argv=(
                *(str(self.program), "--tool", tool, "--log-file", "{scratch}/" + _LOG),
                *("--print-limit", str(_PRINTED), "--launch-timeout", "60"),
                # A failed API call is handled by the op, and judged by the check.
                *("--report-api-errors", "no"),
                # The copies that the op works on are made from memory that the judge's process wrote.
                *(("--check-api-memory-access", "no") if tool == "initcheck" else ()),
            ),
            readable=(self.home,),
            environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        )


def find_sanitizer(cuda_root: Path | None, environment: Mapping[str, str] = os.environ) -> Sanitizer | str:
    """The program on PATH, in CUDA_HOME or in `cuda_root`, or why it cannot be used."""
    roots = [Path(root) for root in (environment.get("CUDA_HOME"), cuda_root) if root]
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
    def elements(problem: Problem) -> int:
        return sum(slot.size // slot.dtype.itemsize for slot in Layout(problem).slots)

    ordered = sorted(problems, key=elements)
    return next((p for p in ordered if elements(p) >= LEAST_ELEMENTS), ordered[-1])


def absent_runs(reason: str) -> tuple[SanitizerRun, ...]:
    return tuple(SanitizerRun(tool=tool, status="not_present", message=reason) for tool in SANITIZER_TOOLS)


def run_tool(start: StartUnder, sanitizer: Sanitizer, tool: SanitizerTool, problem: Problem) -> SanitizerRun:
    began, layout = time.monotonic(), Layout(problem)
    failure: Failed | SandboxError | None = None
    with start(TOOL_WALL_S, sanitizer.wrapper(tool)) as worker:
        try:
            worker.load()
            worker.plan(layout)
            with Arena(layout, [problem.make_inputs()], 0xFF, worker.transport) as arena:
                worker.trace(arena, "under compute-sanitizer", watch="copies")
        except (Failed, SandboxError) as failed:  # recorded below: the tool may be unable to start it
            failure = failed
        facts = worker.end(max(1.0, TOOL_WALL_S - (time.monotonic() - began)))
        report = read_report(_log_of(worker))
    late = facts is None or facts.status == "wall_timeout"
    late = late or (isinstance(failure, Failed) and failure.finding.cause is Cause.WALL_TIMEOUT)
    why = report.trouble or (None if failure is None else str(failure))
    status: SanitizerStatus = "clean"
    if late:
        status, why = "timed_out", why or f"no end within {TOOL_WALL_S:.0f} s"
    elif report.total or report.findings:
        status = "findings"
    elif report.total is None or why is not None:
        status, why = "not_measured", why or "the tool wrote no summary"
    return SanitizerRun(
        tool=tool,
        status=status,
        total=report.total,
        findings=report.findings if status in ("findings", "timed_out") else (),
        message=None if why is None else why[:300],
        workload=problem.label,
        wall_s=time.monotonic() - began,
    )


def _log_of(worker: WorkerClient) -> str:
    with tempfile.TemporaryDirectory() as folder, suppress(CollectError):
        for path in worker.collect([_LOG], Path(folder)):
            with path.open("rb") as file:
                return file.read(MAX_REPORT_BYTES).decode(errors="replace")
    return ""


@dataclass(frozen=True)
class Report:
    total: int | None
    findings: tuple[SanitizerFinding, ...]
    trouble: str | None


def read_report(text: str) -> Report:
    total, trouble = None, None
    counts: dict[tuple[str, str | None], int] = {}
    for head, body in _records(text[:MAX_REPORT_BYTES]):
        total = _summed(head, total)
        if _TROUBLE.match(head):
            trouble = trouble or head[:_TEXT_CHARS]
        elif not _ASIDE.match(head):
            key = (head[:_TEXT_CHARS], _kernel([head, *body]))
            counts[key] = counts.get(key, 0) + 1
    findings = [SanitizerFinding(message=m, kernel=k, count=n) for (m, k), n in counts.items()]
    return Report(total, tuple(findings[:_MAX_FINDINGS]), trouble)


def _records(text: str) -> Iterator[tuple[str, list[str]]]:
    head, body = "", list[str]()
    for line in text.splitlines():
        match = _PREFIX.match(line)
        if match is None or not match[1].strip():
            continue
        if not match[1].startswith(" "):
            if head:
                yield head, body
            head, body = match[1].strip(), []
        else:
            body.append(match[1].strip())
    if head:
        yield head, body


def _summed(head: str, total: int | None) -> int | None:
    hazards, errors = _HAZARDS.match(head), _ERRORS.match(head)
    if hazards is not None:
        return max(total or 0, int(hazards[1]), int(hazards[2]) + int(hazards[3]))
    return max(total or 0, int(errors[1])) if errors is not None else total


def _kernel(lines: list[str]) -> str | None:
    found = (match[1][:_TEXT_CHARS] for line in lines if (match := _PLACE.match(line)))
    return next(found, None)
