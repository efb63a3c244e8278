"""Figures of the expert kernels: what `liftbench validate --record` writes.

Every figure has the machine, the protocol and the day of its measurement. What was not measured is None.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from harness.errors import UsageError
from harness.files import write_atomically
from harness.records import Grade, MachineFacts, Record
from harness.records.reasons import reason_of


class ExpertResult(Record):
    """What one expert did on one machine."""

    task: str
    target: Literal["cpu", "cuda"]
    device: str
    protocol: str
    correct: bool
    speedup: float | None = None
    """Over the fastest reference; None where it was not timed."""
    low: float | None = None
    high: float | None = None
    workload: str | None = None
    """The timed one that the times are of; the speedup is over all that were timed."""
    student_us: float | None = None
    reference: str | None = None
    reference_us: float | None = None
    of_light: float | None = None
    of_copy: float | None = None
    """The same with the largest copy of that session in place of the datasheet's bandwidth: only right where
    memory is what binds."""
    sol: float | None = None
    """SOL score of that workload; None in older results too."""
    flags: str = ""
    measured_at: str


class ExpertResults(Record):
    """The file that `liftbench validate --record` writes."""

    schema_version: Literal[1] = 1
    kind: Literal["experts"] = "experts"
    results: tuple[ExpertResult, ...] = ()


def result_of(grade: Grade, machine: MachineFacts) -> ExpertResult:
    """What `validate --record` keeps of a grade."""
    made = ExpertResult(
        task=grade.task,
        target=grade.target,
        device=machine.cpu if grade.target == "cpu" else machine.gpu or "no GPU",
        protocol=grade.protocol,
        correct=bool(grade.correct),
        measured_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
    )
    timing = grade.timing
    if timing is None or not timing.workloads:
        return made
    first = timing.workloads[0]
    fastest = min(first.references, key=lambda one: one.score_us)
    figures = {
        "speedup": timing.speedup.value,
        "low": timing.speedup.low,
        "high": timing.speedup.high,
        "workload": f"{first.workload} {first.dtype}",
        "student_us": first.student.score_us,
        "reference": fastest.name,
        "reference_us": fastest.score_us,
        "of_light": first.speed_of_light,
        "sol": first.physics and first.physics.score,
        "flags": ", ".join(timing.flags),
    }
    return made.model_copy(update=figures)


def read_results(path: Path) -> tuple[ExpertResult, ...]:
    """Raises UsageError for a file that holds something else."""
    try:
        return ExpertResults.model_validate_json(path.read_text(encoding="utf-8")).results
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise UsageError(f"{path} holds no results of experts: {reason_of(error)}; move it away") from error


def write_results(path: Path, results: Iterable[ExpertResult]) -> None:
    """Put results into that file, in place of older ones of the same tasks on the same device.

    Raises UsageError for a file that holds something else.
    """
    found = read_results(path) if path.exists() else ()
    kept = {(one.task, one.device): one for one in (*found, *results)}
    contents = ExpertResults(results=tuple(kept[key] for key in sorted(kept)))
    write_atomically(path, contents.model_dump_json(indent=1, exclude_none=True) + "\n")
