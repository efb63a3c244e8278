"""How the experts did on real machines, gathered from `results/`.

Every figure has the machine, the protocol and the day that it was measured on; a result that is not there
is absent, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from harness.errors import UsageError
from harness.files import write_atomically
from harness.judge.physics import BOARDS
from harness.records import Grade, MachineFacts, Record
from harness.records.gpu_check import Contents, Entry
from harness.records.reasons import reason_of


class Result(Record):
    """What one expert did on one machine."""

    task: str
    target: Literal["cpu", "cuda"]
    device: str
    """The GPU's or the CPU's name."""
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
    """The fastest one's name."""
    reference_us: float | None = None
    of_light: float | None = None
    """Share of the speed of light by the datasheet."""
    of_copy: float | None = None
    """The same with the largest copy of that session in place of the datasheet's bandwidth: only right where
    memory is what binds."""
    flags: str = ""
    measured_at: str
    """UTC, to the second."""


class Results(Record):
    """The file that `liftbench validate --record` writes."""

    schema_version: Literal[1] = 1
    kind: Literal["experts"] = "experts"
    results: tuple[Result, ...] = ()


def result_of(grade: Grade, machine: MachineFacts) -> Result:
    """The result that a grade is."""
    fields: dict[str, object] = {}
    timing = grade.timing
    if timing is not None and timing.workloads:
        first = timing.workloads[0]
        fastest = min(first.references, key=lambda one: one.score_us)
        fields = {
            "speedup": timing.speedup.value,
            "low": timing.speedup.low,
            "high": timing.speedup.high,
            "workload": f"{first.workload} {first.dtype}",
            "student_us": first.student.score_us,
            "reference": fastest.name,
            "reference_us": fastest.score_us,
            "of_light": first.speed_of_light,
            "flags": ", ".join(timing.flags),
        }
    return Result.model_validate(
        {
            "task": grade.task,
            "target": grade.target,
            "device": machine.cpu if grade.target == "cpu" else machine.gpu or "no GPU",
            "protocol": grade.protocol,
            "correct": bool(grade.correct),
            "measured_at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
            **fields,
        }
    )


def write_results(path: Path, results: Iterable[Result]) -> None:
    """Put results into that file, in place of older ones of the same tasks on the same device.

    Raises UsageError for a file that holds something else.
    """
    kept: Mapping[tuple[str, str], Result] = {}
    if path.exists():
        found = _read(path)
        if not isinstance(found, Results):
            raise UsageError(f"{path} holds something else than results of experts; name another file")
        kept = {(one.task, one.device): one for one in found.results}
    kept = {**kept, **{(one.task, one.device): one for one in results}}
    contents = Results(results=tuple(kept[key] for key in sorted(kept)))
    write_atomically(path, contents.model_dump_json(indent=1, exclude_none=True) + "\n")


_FILE: TypeAdapter[Results | Contents] = TypeAdapter(Results | Contents)


def _read(path: Path) -> Results | Contents:
    try:
        return _FILE.validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise UsageError(f"{path} is no file of results: {reason_of(error)}; move it away") from error


def read_results(folder: Path) -> list[Result]:
    """Everything in the JSON files of `results/`, oldest first. Raises UsageError for a broken file."""
    found: list[Result] = []
    for path in sorted(folder.glob("*.json")):
        contents = _read(path)
        found += contents.results if isinstance(contents, Results) else _of_ledger(contents)
    return sorted(found, key=lambda one: one.measured_at)


def _of_ledger(contents: Contents) -> Iterator[Result]:
    """The items `expert/TASK`, `time/TASK` and `full/TASK` that were asked on a GPU."""
    ceilings = next((entry.facts for entry in contents.entries if entry.name == "ceilings"), {})
    copy_gb_s = ceilings.get("copy_gb_s")
    board = BOARDS.get(contents.gpu)
    share = board.bandwidth_gb_s / copy_gb_s if board and isinstance(copy_gb_s, float) else None
    for entry in contents.entries:
        found = re.fullmatch(r"(expert|time|full)/(.+)", entry.name)
        if found is not None and entry.status != "not_here":
            yield _of_entry(found[2], entry, contents.gpu, share)


def _of_entry(task: str, entry: Entry, gpu: str, share: float | None) -> Result:
    facts = entry.facts
    names = {"speedup": "speedup", "low": "low", "high": "high", "workload": "workload"}
    names |= {"student_us": "student_us", "fastest_reference": "reference", "reference_us": "reference_us"}
    names |= {"of_speed_of_light": "of_light"}
    light = facts.get("of_speed_of_light")
    of_copy = light * share if isinstance(light, float) and share is not None else None
    flags = str(facts.get("flags", "-"))
    return Result.model_validate(
        {
            "task": task,
            "target": "cuda",
            "device": gpu,
            "protocol": str(facts.get("protocol", "quick")),
            "correct": entry.status == "passed",
            "flags": "" if flags == "-" else flags,
            "of_copy": of_copy,
            "measured_at": entry.measured_at,
            **{ours: facts[theirs] for theirs, ours in names.items() if facts.get(theirs) is not None},
        }
    )
