"""Measured results of the expert kernels in `results/`, and the page about them.

Every figure has the machine, the protocol and the day of its measurement. What was not measured is absent or
called so, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from harness.errors import UsageError
from harness.files import write_atomically
from harness.judge.physics import BOARDS
from harness.records import Admission, Grade, MachineFacts, Record, Task
from harness.records.gpu_check import Contents, Entry
from harness.records.reasons import reason_of

NOT_YET = "not measured yet"
_BOUND_BY_ARITHMETIC = frozenset({"gemm", "gemm_fp8", "attention", "mlp", "moe", "convolution"})
_LEAST_OF_COPY = 0.8
_WITHIN = 1.5


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


# The status page


def status_page(tasks: Sequence[Task], admissions: Sequence[Admission], results: Sequence[Result]) -> str:
    """Markdown. `results`: oldest first; the newest of a task, device and kind counts."""
    checked = {entry.task: entry for entry in admissions}
    on_cpu = {one.task: one for one in results if one.target == "cpu"}
    on_gpu = [one for one in results if one.target == "cuda"]
    correct = {one.task: one for one in on_gpu}
    timed = {one.task: one for one in on_gpu if one.speedup is not None}
    lines = [
        "# The expert kernels: what is measured",
        "",
        "Made by `make status` from `results/` and `tasks/ADMISSION.json`. A speedup is over the fastest of "
        "the references that were timed: eager, the fused library op, with `full` torch.compile. `of copy` "
        "is the share of the speed of light with the largest copy of that session in place of the "
        "datasheet's bandwidth, for ops that memory binds. All experts compile for sm_90 in CI.",
        "",
        *_goals(tasks, timed),
        "",
        "| task | family | CPU: correct | CPU: speedup | GPU: correct | GPU: speedup | of copy | GPU, day |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task in tasks:
        cells = [task.id, task.family, _admitted(checked.get(task.id)), _speedup(on_cpu.get(task.id))]
        cells += [_correct(correct.get(task.id)), _speedup(timed.get(task.id))]
        cells += [
            "-" if task.family in _BOUND_BY_ARITHMETIC else _copy(timed.get(task.id)),
            _where(correct.get(task.id)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    machines = sorted({f"{one.device} ({one.target})" for one in results})
    lines += ["", f"Machines: {'; '.join(machines) or 'none'}."]
    return "\n".join(lines) + "\n"


def _goals(tasks: Sequence[Task], timed: dict[str, Result]) -> list[str]:
    """The goals on a GPU, each with how many experts were measured."""
    small = [t for t in tasks if t.level in ("l1", "l2") and t.id in timed]
    bound = [t for t in tasks if t.family not in _BOUND_BY_ARITHMETIC and t.id in timed]
    heavy = [t for t in tasks if t.family in ("gemm", "gemm_fp8", "attention") and t.id in timed]
    fast = sum((timed[t.id].speedup or 0.0) >= 1.0 for t in small)
    light = sum((timed[t.id].of_copy or 0.0) >= _LEAST_OF_COPY for t in bound)
    near = sum((timed[t.id].speedup or 0.0) >= 1.0 / _WITHIN for t in heavy)
    return [
        f"- at least as fast as the fastest reference on 3 of 4 tasks of l1 and l2: {_of(fast, len(small))}",
        f"- memory-bound ones at 80 % of the measured copy bandwidth: {_of(light, len(bound))}",
        f"- gemm and attention within 1.5x of the library: {_of(near, len(heavy))}",
    ]


def _of(count: int, measured: int) -> str:
    return f"{count} of {measured} measured" if measured else NOT_YET


def _admitted(entry: Admission | None) -> str:
    rule = None if entry is None else next((r for r in entry.rules if r.name == "expert"), None)
    if rule is None or rule.status == "not_measured":
        return NOT_YET
    return "yes" if rule.status == "holds" else "NO"


def _correct(result: Result | None) -> str:
    return NOT_YET if result is None else "yes" if result.correct else "NO"


def _speedup(result: Result | None) -> str:
    if result is None or result.speedup is None:
        return NOT_YET
    interval = "" if result.low is None or result.high is None else f" ({result.low:.2f}, {result.high:.2f})"
    noisy = ", noisy host" if "noisy host" in result.flags else ""
    return f"{result.speedup:.2f}x{interval}, {result.protocol}, beside {result.reference}{noisy}"


def _copy(result: Result | None) -> str:
    return "-" if result is None or result.of_copy is None else f"{result.of_copy:.0%}"


def _where(result: Result | None) -> str:
    return "-" if result is None else f"{result.device}, {result.measured_at[:10]}"
