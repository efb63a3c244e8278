"""The kernels board: the fastest correct projects of each task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.board.entries import BoardRun, Division, Entry
from harness.outcome import Verdict
from harness.records import Grade
from harness.report.experts import ExpertResult

SHOWN = 3
"""Projects of each task."""


@dataclass(frozen=True)
class KernelRow:
    """One project, or our expert's."""

    task: str
    author: str
    speedup: float
    low: float | None
    high: float | None
    student_us: float | None
    workload: str | None
    of_light: float | None
    """Share of the physical limit; None where the limit of this machine is unknown."""
    sol: float | None
    flags: str
    entry: str | None = None
    """None: our expert's."""


def kernel_rows(
    division: Division, entries: Sequence[Entry], runs: Sequence[BoardRun], experts: Sequence[ExpertResult]
) -> Iterator[KernelRow]:
    """By task, the fastest first; experts of this device and protocol after them."""
    found: dict[str, list[KernelRow]] = {}
    by_arm = {(entry.run_id, entry.model, entry.arm): entry for entry in entries}
    for one in runs:
        for trial in one.trials:
            entry = by_arm.get((one.run.run_id, trial.key.model, trial.key.arm))
            timed = trial.grade is not None and trial.grade.timing is not None
            if entry is not None and timed and trial.verdict is Verdict.CORRECT and trial.grade is not None:
                found.setdefault(trial.key.task, []).append(_row(trial.grade, entry))
    for result in experts:
        same = (result.target, result.protocol, result.device) == (
            division.target,
            division.protocol,
            division.device,
        )
        if same and result.correct and result.speedup is not None:
            found.setdefault(result.task, []).append(_expert(result))
    for _, rows in sorted(found.items()):
        students = sorted((r for r in rows if r.entry), key=lambda r: -r.speedup)
        yield from students[:SHOWN]
        yield from (r for r in rows if not r.entry)


def _row(grade: Grade, entry: Entry) -> KernelRow:
    timing = grade.timing
    assert timing is not None
    first = next(iter(timing.workloads), None)
    physics = None if first is None else first.physics
    return KernelRow(
        task=grade.task,
        author=f"{entry.model_label}, {entry.skill}",
        speedup=timing.speedup.value,
        low=timing.speedup.low,
        high=timing.speedup.high,
        student_us=None if first is None else first.student.score_us,
        workload=None if first is None else f"{first.workload} {first.dtype}",
        of_light=None if first is None else first.speed_of_light,
        sol=None if physics is None else physics.score,
        flags=", ".join(timing.flags),
        entry=entry.id,
    )


def _expert(result: ExpertResult) -> KernelRow:
    return KernelRow(
        task=result.task,
        author="expert",
        speedup=result.speedup or 0.0,
        low=result.low,
        high=result.high,
        student_us=result.student_us,
        workload=result.workload,
        of_light=result.of_light,
        sol=None,
        flags=result.flags,
    )
