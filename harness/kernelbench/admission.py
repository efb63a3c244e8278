"""Which KernelBench problems are fair tasks on a target, and why the others are not.

A problem is never shrunk for a GPU. On the CPU target its first axis may be, which the task and the record
say. Values may be probed on part of the rows, which the record says too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.device.machine import gpu_memory_bytes
from harness.expressions import evaluate
from harness.files import write_atomically
from harness.kernelbench.conversion import Converted, convert
from harness.kernelbench.isolation import Isolation, in_parallel
from harness.kernelbench.problems import CPU_FLOPS, ProblemFacts, ProblemFile, Unfit
from harness.records import Record, Target
from harness.suite.catalogue import LoadedTask
from harness.suite.sizes import DEVICE_SHARE, HOST_BYTES, gib, sizes

H100_BYTES = 80 * 10**9
"""Assumed without a GPU: the smaller of the target's boards."""
_WITH_INTERMEDIATES = 0.9
"""Share of the memory for judging with all intermediates of the float64 truth alive (our choice)."""
# Estimated 5 s of float64 work; a Hopper board runs convolutions far below its peak of 34e12 (our choice,
# not measured). Where rows are independent, as many are compared as that allows.
_MOST_FLOPS: dict[Target, float] = {"cpu": CPU_FLOPS, "cuda": 50e12}
_PROBE_BYTES = 1 << 29
_PROBE_FLOPS = 1e9
"""Work of one of the five calls of a probe on the host."""
_PROBE_ROWS = (8, 4, 2, 1)
_VERSION = 5
By = Literal["whole", "rows", "parts"]


class Admission(Record):
    """The admission of one problem on one target."""

    task: str
    file: str
    digest: str | None
    target: Target
    memory_bytes: int
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What was probed in part or not at all, and conventions of the task."""
    size_bytes: int | None = None
    judged_bytes: int | None = None
    by: By = "whole"
    """How it is judged: whole, the truth of some rows at a time, or the truth whole with fewer copies."""
    scaled: tuple[int, int] | None = None
    """(rows, rows of the problem) if its first axis was reduced: never ranked, no KernelBench score."""

    @property
    def admitted(self) -> bool:
        return not self.reasons


@dataclass(frozen=True)
class Limits:
    target: Target
    memory_bytes: int
    device: str | None
    """Where values are probed at full size; None: on the host, as far as possible."""


def limits_of(target: Target) -> Limits:
    if target == "cpu":
        return Limits(target, DEVICE_SHARE * HOST_BYTES, "cpu")
    memory = gpu_memory_bytes()
    return Limits(target, memory or H100_BYTES, "cuda" if memory else None)


def admit_all(
    problems: Sequence[ProblemFile],
    target: Target,
    cache: Path,
    observer: Callable[[str], None] = lambda line: None,
) -> list[tuple[Converted, Admission]]:
    """Convert and admit every problem, in parallel; results are cached.

    `observer` is called with each step, from any thread.
    """
    limits = limits_of(target)
    where = "gpu" if limits.device == "cuda" else "host"
    name = f"admission-{_VERSION}-{target}-{limits.memory_bytes}-{where}.json"
    on_gpu = threading.Lock()  # whether two problems fit on a GPU together is not known

    def work(problem: ProblemFile, isolation: Isolation) -> tuple[Converted, Admission]:
        one = convert(problem, cache, isolation)
        observer(f"read {problem.id}")
        if one.loaded is None:
            return one, admit(one, limits, isolation)
        file = one.loaded.directory.parent.parent / name
        if file.is_file():
            known = Admission.model_validate_json(file.read_text())
            return one, known.model_copy(update={"file": str(problem.path)})
        with on_gpu if limits.device == "cuda" else nullcontext():
            made = admit(one, limits, isolation)
        write_atomically(file, made.model_dump_json())
        observer(f"judged {problem.id}")
        return one, made

    return in_parallel(problems, work)


def admit(one: Converted, limits: Limits, isolation: Isolation) -> Admission:
    target = limits.target
    made = Admission(
        task=one.problem.id,
        file=str(one.problem.path),
        digest=None,
        target=target,
        memory_bytes=limits.memory_bytes,
        reasons=(one.refusal or "it could not be read",),
    )
    facts, loaded = one.facts, one.loaded
    if facts is None or loaded is None:
        return made
    task = loaded.task
    (size,), (workload,) = sizes(task, target), task.workloads_for(target)
    scaled = None if workload.scaled_from is None else (workload.dims["rows"], workload.scaled_from)
    reasons = static_reasons(loaded, facts, limits)
    notes = [] if scaled is None else [f"scaled: {scaled[0]} of {scaled[1]} rows"]
    notes += ["inputs from (-3, 3]"] if facts.wide else []
    notes += ["train-mode batch norm"] if facts.batch_statistics else []
    if not facts.draws and not facts.writes:
        found, said = _probe(loaded, facts, limits, isolation, fits=not reasons)
        reasons += found
        notes += said
    by = judged_by(loaded, limits)
    if by == "rows" and facts.rows is not None and facts.rows.apart is None:
        notes.append("rows proven apart when graded")
    update = {
        "digest": task.digest,
        "reasons": tuple(reasons),
        "notes": tuple(notes),
        "size_bytes": size.operands_bytes,
        "judged_bytes": size.needed(target, limits.memory_bytes)[0],
        "by": by,
        "scaled": scaled,
    }
    return made.model_copy(update=update)


def judged_by(loaded: LoadedTask, limits: Limits) -> By:
    (size,), parts = sizes(loaded.task, limits.target), loaded.task.parts
    fits = size.judged_bytes <= limits.memory_bytes // DEVICE_SHARE
    if parts is None or limits.target == "cpu" or fits:
        return "whole"
    return "rows" if parts.rows else "parts"


def static_reasons(loaded: LoadedTask, facts: ProblemFacts, limits: Limits) -> list[str]:
    """Reasons against a problem that do not need values."""
    reasons = []
    if facts.draws:
        reasons.append(f"its forward draws random numbers ({', '.join(facts.draws)}): dropout or the like")
    if facts.writes:
        reasons.append(f"its forward writes to {', '.join(facts.writes)}")
    task, by = loaded.task, judged_by(loaded, limits)
    (size,), (workload,) = sizes(task, limits.target), task.workloads_for(limits.target)
    needed, limit = size.needed(limits.target, limits.memory_bytes)
    if needed <= limit and by == "whole":
        live = 2 * evaluate(task.parts.live, workload.dims) if task.parts else 2 * facts.peak_bytes
        needed, limit = needed + live, int(limits.memory_bytes * _WITH_INTERMEDIATES)
    if needed > limit:
        reasons.append(f"too large for {limits.target}: {gib(needed)} to judge (limit {gib(limit)})")
    work = 0 if task.flops is None else evaluate(task.flops, workload.dims)
    most = _MOST_FLOPS[limits.target]
    if work > most and by != "rows":
        reasons.append(
            f"too much work for {limits.target}: {work / 1e9:,.0f} GFLOP (limit {most / 1e9:,.0f})"
        )
    return reasons


def _probe(
    loaded: LoadedTask, facts: ProblemFacts, limits: Limits, isolation: Isolation, *, fits: bool
) -> tuple[list[str], list[str]]:
    """(reasons, notes) of a probe of values: at full size if that fits, else on some of the rows."""

    def ask(device: str, rows: int | None) -> list[str]:
        folder, target = str(loaded.directory), limits.target
        try:
            found = isolation.ask("probe", folder=folder, target=target, device=device, rows=rows)
            return [str(reason) for reason in found]
        except Unfit as refused:
            return [str(refused)]

    (workload,) = loaded.task.workloads_for(limits.target)
    own = workload.dims.get("rows")
    if fits and (_small(facts, own) or (limits.device == "cuda" and judged_by(loaded, limits) == "whole")):
        return ask(limits.device or "cpu", None), []
    # An output without rows (a loss) is easier to guess the more rows there are.
    follows = facts.rows is not None and len(facts.rows.outputs) == len(facts.outputs)
    for rows in _PROBE_ROWS if own is not None and follows else ():
        if own is not None and rows < own and _small(facts, rows):
            return ask("cpu", rows), [f"values looked at on {rows} of {own} rows"]
    return [], ["values not looked at"]


def _small(facts: ProblemFacts, rows: int | None) -> bool:
    """Whether the host can probe so many rows (None: all): two draws in float32 and float64, and what is
    alive in between."""
    flops, live = facts.flops, facts.peak_bytes
    operands = sum(t.size_bytes for t in facts.tensors)
    if rows is not None and facts.rows is not None:
        left_out = facts.rows.rows - rows
        flops -= left_out * facts.rows.flops
        live -= left_out * facts.rows.peak_bytes
        operands -= left_out * sum(t.size_bytes // facts.rows.rows for t in facts.tensors if facts.scales(t))
    return 6 * (operands + max(0, live)) <= _PROBE_BYTES and flops <= _PROBE_FLOPS
