"""Timing samples in the JSON of pytest-benchmark, which `pytest-benchmark compare` reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest_benchmark
from pydantic import ValidationError
from pytest_benchmark.stats import Stats

from harness import __version__
from harness.errors import UsageError
from harness.records import ContenderTiming, Grade, WorkloadTiming, utc_now
from harness.records.reasons import reason_of
from harness.study.store import find_run

_STATS: Final[Any] = Stats  # it has no types


def samples_of(source: str, runs: Path) -> dict[str, Any]:
    """One benchmark per contender, workload and grade.

    `source`: a file that `grade --json` wrote, or a run. Raises UsageError where it has no samples.
    """
    timed = [(name, grade) for name, grade in _grades(source, runs) if grade.correct and grade.timing]
    found = [one for name, grade in timed for one in _benchmarks(name, grade)]
    if not found:
        older = "its records are of a version that kept none; grade it again"
        raise UsageError(f"{source} has no timing samples: {older if timed else 'nothing was timed'}")
    return {
        "machine_info": {"devices": sorted({one["params"]["device"] for one in found})},
        "commit_info": {"liftbench": __version__},
        "benchmarks": found,
        "datetime": utc_now(),
        "version": pytest_benchmark.__version__,
    }


def _grades(source: str, runs: Path) -> Iterator[tuple[str, Grade]]:
    """What each grade's project is called, with the grade."""
    path = Path(source)
    if path.is_file():
        try:
            yield "project", Grade.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise UsageError(f"{path} is no output of `liftbench grade --json`: {reason_of(error)}") from None
        return
    for trial in find_run(runs, source).load():
        if trial.grade is not None:
            yield f"{trial.key.model} {trial.key.arm} {trial.key.repeat}", trial.grade


def _benchmarks(name: str, grade: Grade) -> Iterator[dict[str, Any]]:
    """Of one grade; references are named after the project that they were measured with."""
    timing, device = grade.timing, grade.place and grade.place.device
    if timing is None or device is None:
        return
    label = f"{'CPU' if grade.target == 'cpu' else 'GPU'} {device}"
    for workload in timing.workloads:
        for contender in (workload.student, *workload.references):
            if contender.reveals_us:
                called = name if contender is workload.student else f"{contender.name} beside {name}"
                yield _benchmark(called, grade, workload, contender, label)


def _benchmark(
    name: str, grade: Grade, workload: WorkloadTiming, contender: ContenderTiming, device: str
) -> dict[str, Any]:
    stats = _STATS()
    for reveal_us in contender.reveals_us:
        stats.update(reveal_us / 1e6)
    calls = contender.scored_lane.calls / len(contender.reveals_us)
    own = contender is workload.student
    params = {"workload": workload.workload, "dtype": workload.dtype, "device": device}
    full = f"{grade.task}[{workload.workload}-{workload.dtype}] {name} on {device}"
    return {
        "group": f"{grade.task} {workload.workload} {workload.dtype} on {device}",
        "name": name,
        "fullname": full,
        "params": params,
        "param": "-".join(params.values()),
        "extra_info": {
            "protocol": grade.protocol,
            "clock": "outside: per call, the null project's constant subtracted",
            "score_us": contender.score_us,
            "flags": [*contender.flags, *(grade.timing.flags if own and grade.timing else ())],
            **({"speedup": workload.speedup.model_dump(mode="json")} if own else {}),
        },
        "options": {},
        "stats": {**stats.as_dict(), "data": stats.data, "iterations": max(1, round(calls))},
    }
