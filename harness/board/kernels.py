"""The kernels board: the fastest correct projects of each task."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from harness.board.entries import Entry
from harness.board.runs import BoardRun, Division
from harness.outcome import Verdict
from harness.records import Grade, Record
from harness.report.experts import ExpertResult
from harness.text import clean

SHOWN = 3
"""Projects of each task."""


class KernelTime(Record):
    """One timed workload."""

    workload: str
    student_us: float
    of_light: float | None
    """Share of the physical limit; None where the limit of this machine is unknown."""
    sol: float | None


class KernelRow(Record):
    """One project, or our expert's."""

    task: str
    family: str
    author: str
    speedup: float
    low: float | None
    high: float | None
    times: tuple[KernelTime, ...]
    """Every timed workload."""
    flags: str
    entry: str | None = None
    """None: our expert's."""
    not_ranked: tuple[str, ...] = ()


def kernels_of(one: BoardRun, entry: Entry) -> tuple[KernelRow, ...]:
    """The fastest correct projects of each task of an entry; none of one that was taken off."""
    found = [
        _row(trial.grade, entry, one.run.lock.families[trial.key.task])
        for trial in one.trials
        if (trial.key.model, trial.key.arm) == (entry.model, entry.arm)
        and trial.key.task in one.run.config.tasks
        if trial.verdict is Verdict.CORRECT and trial.grade is not None and trial.grade.timing is not None
    ]
    return () if entry.off else tuple(_fastest(found))


def kernel_rows(
    division: Division,
    rows: Sequence[KernelRow],
    experts: Sequence[ExpertResult],
    families: Mapping[str, str],
) -> Iterator[KernelRow]:
    """By task, the fastest first; experts of this device and protocol after them. families: of tasks."""
    place = (division.target, division.protocol, division.device)
    ours = [
        _expert(one, families.get(one.task, ""))
        for one in experts
        if (one.target, one.protocol, one.device) == place and one.correct and one.speedup is not None
    ]
    yield from sorted([*_fastest(rows), *ours], key=lambda row: row.task)


def _fastest(rows: Sequence[KernelRow]) -> Iterator[KernelRow]:
    """What may be ranked stands before what may not."""
    order = sorted(rows, key=lambda row: (row.task, bool(row.not_ranked), -row.speedup))
    for _, members in itertools.groupby(order, key=lambda row: row.task):
        yield from itertools.islice(members, SHOWN)


def _row(grade: Grade, entry: Entry, family: str) -> KernelRow:
    timing = grade.timing
    assert timing is not None
    return KernelRow(
        task=grade.task,
        family=family,
        author=f"{entry.model_label}, {entry.skill}",
        speedup=timing.speedup.value,
        low=timing.speedup.low,
        high=timing.speedup.high,
        times=tuple(
            KernelTime(
                workload=clean(f"{one.workload} {one.dtype}"),
                student_us=one.student.score_us,
                of_light=one.speed_of_light,
                sol=None if one.physics is None else one.physics.score,
            )
            for one in timing.workloads
        ),
        flags=", ".join(timing.flags),
        entry=entry.id,
        not_ranked=entry.not_ranked,
    )


def _expert(result: ExpertResult, family: str) -> KernelRow:
    times: tuple[KernelTime, ...] = ()
    if result.student_us is not None and result.workload is not None:
        light = result.of_light
        made = KernelTime(
            workload=result.workload, student_us=result.student_us, of_light=light, sol=result.sol
        )
        times = (made,)
    return KernelRow(
        task=result.task,
        family=family,
        author="expert",
        speedup=result.speedup or 0.0,
        low=result.low,
        high=result.high,
        times=times,
        flags=result.flags,
    )
