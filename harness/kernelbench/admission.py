"""Which KernelBench problems make fair tasks on a target, and why the others do not.

Nothing is shrunk to fit on a GPU; on the CPU target the first axis may be, which the task and the record
say. Values may be looked at on a part of the rows, which the record says too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.device.machine import gpu_memory_bytes
from harness.expressions import evaluate
from harness.files import write_atomically
from harness.kernelbench.checkout import ProblemFile
from harness.kernelbench.conversion import Converted, convert_all
from harness.kernelbench.facts import CPU_FLOPS, ProblemFacts, TensorFacts
from harness.kernelbench.isolation import Isolation, Refused, in_parallel
from harness.records import Record, Target, Workload
from harness.suite.catalogue import LoadedTask
from harness.suite.sizes import DEVICE_SHARE, HOST_BYTES, gib, sizes

H100_BYTES = 80 * 10**9
"""Assumed where there is no GPU: the smaller of the boards that the target is."""
_CPU_BYTES = DEVICE_SHARE * HOST_BYTES
"""As if it were a device of which projects may use their share."""
_WITH_INTERMEDIATES = 0.9
"""Of the memory, for what is judged with all that the float64 truth has alive in between [own]."""
# Own estimates of 5 s of float64 work: a Hopper board whose convolutions are far from its peak of 34e12 (not
# measured on a GPU). Where rows are apart, as many are compared as that allows (judge/parts.py).
_MOST_FLOPS: dict[Target, float] = {"cpu": CPU_FLOPS, "cuda": 50e12}
_PROBE_BYTES = 1 << 29
"""Of all that a look at values may hold on the host."""
_PROBE_FLOPS = 1e9
"""Of one call in such a look, which makes five."""
_PROBE_ROWS = (8, 4, 2, 1)
_VERSION = 2


class Admission(Record):
    """One problem on one target."""

    task: str
    file: str
    digest: str | None
    """Of the task; None where there is none."""
    target: Target
    memory_bytes: int
    """Of the device that the limits are of."""
    reasons: tuple[str, ...]
    """Why it is not admitted; empty where it is."""
    notes: tuple[str, ...] = ()
    """What was looked at in part or not at all, and conventions that the task has."""
    inputs: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    parameters: int = 0
    """How many operands are passed by name."""
    size_bytes: int | None = None
    """Of one set of operands."""
    judged_bytes: int | None = None
    """What judging it takes, computed (suite/sizes.py)."""
    by: Literal["whole", "rows", "parts"] = "whole"
    """How it is judged: whole; the truth of a part of the rows at a time; or the truth whole and few
    copies."""
    flops: int | None = None
    scaled: tuple[int, int] | None = None
    """(rows, rows of the problem) where its first axis is smaller than the problem's: not by KernelBench's
    own rules, and never ranked."""

    @property
    def admitted(self) -> bool:
        """Whether it is graded."""
        return not self.reasons


@dataclass(frozen=True)
class Limits:
    """Of a target, on this machine."""

    target: Target
    memory_bytes: int
    device: str | None
    """Where values are looked at, at full size; None: on the host, as far as that goes."""

    @property
    def judged_bytes(self) -> int:
        """What judging one call may take."""
        return self.memory_bytes // DEVICE_SHARE


def limits_of(target: Target) -> Limits:
    """This machine's."""
    if target == "cpu":
        return Limits(target, _CPU_BYTES, "cpu")
    memory = gpu_memory_bytes()
    return Limits(target, memory or H100_BYTES, "cuda" if memory else None)


def probe_bytes(facts: ProblemFacts, rows: int | None) -> int:
    """What a look at so many rows (None: all) holds at once: two draws, each in float32 and float64, and what
    lives in between."""
    operands, live = facts.operand_bytes, facts.peak_bytes
    if rows is not None and facts.rows is not None:
        left_out = facts.rows.rows - rows
        scaled = [t for t in (*facts.inputs, *facts.outputs) if facts.scales(t)]
        operands -= left_out * sum(t.size_bytes // facts.rows.rows for t in scaled)
        live -= left_out * facts.rows.peak_bytes
    return 6 * (operands + max(0, live))


def static_reasons(loaded: LoadedTask, facts: ProblemFacts, limits: Limits) -> list[str]:
    """Why a problem is no task here, as far as that shows without values."""
    reasons = []
    if facts.draws:
        reasons.append(f"its forward draws random numbers ({', '.join(facts.draws)}): dropout or the like")
    if facts.writes:
        reasons.append(f"its forward writes to {', '.join(facts.writes)}")
    task, by = loaded.task, how(loaded, limits)
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


def how(loaded: LoadedTask, limits: Limits) -> Literal["whole", "rows", "parts"]:
    """How it is judged."""
    (size,), parts = sizes(loaded.task, limits.target), loaded.task.parts
    if parts is None or limits.target == "cpu" or size.judged_bytes <= limits.judged_bytes:
        return "whole"
    return "rows" if parts.rows else "parts"


def admit_all(
    problems: Sequence[ProblemFile],
    target: Target,
    cache: Path,
    observer: Callable[[str], None] = lambda line: None,
) -> list[tuple[Converted, Admission]]:
    """Convert and judge every problem, over the cores; what is known comes from the cache.

    `observer` is told, from any thread, of each step.
    """
    limits = limits_of(target)
    converted = convert_all(problems, cache, lambda one: observer(f"read {one.problem.id}"))
    owed = [one for one in converted if _known(one, limits) is None]
    on_gpu = limits.device == "cuda"

    def work(one: Converted, isolation: Isolation) -> Admission:
        made = admit(one, limits, isolation)
        observer(f"judged {one.problem.id}")
        return made

    # One at a time on a GPU: what two need together is not known to fit.
    made = dict(zip(map(_path, owed), in_parallel(owed, work, 1 if on_gpu else None), strict=True))
    return [(one, made.get(_path(one)) or _required(_known(one, limits))) for one in converted]


def _path(one: Converted) -> Path:
    return one.problem.path


def _required(known: Admission | None) -> Admission:
    assert known is not None
    return known


def _file(one: Converted, limits: Limits) -> Path | None:
    if one.loaded is None:
        return None
    where = "gpu" if limits.device == "cuda" else "host"
    name = f"admission-{_VERSION}-{limits.target}-{limits.memory_bytes}-{where}.json"
    return one.loaded.directory.parent.parent / name


def _known(one: Converted, limits: Limits) -> Admission | None:
    """What was found before, or follows from there being no task."""
    file = _file(one, limits)
    if file is None:
        return Admission(
            task=one.problem.id,
            file=str(one.problem.path),
            digest=None,
            target=limits.target,
            memory_bytes=limits.memory_bytes,
            reasons=(one.refusal or "it could not be read",),
        )
    if not file.is_file():
        return None
    return Admission.model_validate_json(file.read_text()).model_copy(update={"file": str(one.problem.path)})


def admit(one: Converted, limits: Limits, isolation: Isolation) -> Admission:
    """Judge one problem that can be a task, and keep the result."""
    facts = one.facts
    assert facts is not None and one.loaded is not None
    task, target = one.loaded.task, limits.target
    (size,), (workload,) = sizes(task, target), task.workloads_for(target)
    scaled = None if workload.scaled_from is None else (workload.dims["rows"], workload.scaled_from)
    reasons, notes = static_reasons(one.loaded, facts, limits), _conventions(facts, scaled)
    if not facts.draws and not facts.writes:
        found, said = _look(one.loaded, facts, limits, isolation, fits=not reasons)
        reasons += found
        notes += said
    by = how(one.loaded, limits)
    if by == "rows" and facts.rows is not None and facts.rows.apart is None:
        notes.append("rows proven apart when graded")
    made = Admission(
        task=one.problem.id,
        file=str(one.problem.path),
        digest=task.digest,
        target=target,
        memory_bytes=limits.memory_bytes,
        reasons=tuple(reasons),
        notes=tuple(notes),
        inputs=tuple(_shape(t, facts, workload) for t in facts.inputs),
        outputs=tuple(_shape(t, facts, workload) for t in facts.outputs),
        parameters=len(facts.parameters),
        size_bytes=size.operands_bytes,
        judged_bytes=size.needed(target, limits.memory_bytes)[0],
        by=by,
        flops=None if task.flops is None else evaluate(task.flops, workload.dims),
        scaled=scaled,
    )
    file = _file(one, limits)
    if file is not None:
        write_atomically(file, made.model_dump_json())
    return made


def _shape(tensor: TensorFacts, facts: ProblemFacts, workload: Workload) -> tuple[int, ...]:
    return (workload.dims["rows"], *tensor.shape[1:]) if facts.scales(tensor) else tensor.shape


def _conventions(facts: ProblemFacts, scaled: tuple[int, int] | None) -> list[str]:
    notes = []
    if scaled is not None:
        notes.append(f"scaled: {scaled[0]} of {scaled[1]} rows")
    if facts.wide:
        notes.append("inputs from (-3, 3]")
    if facts.batch_statistics:
        notes.append("train-mode batch norm")
    return notes


def _look(
    loaded: LoadedTask, facts: ProblemFacts, limits: Limits, isolation: Isolation, *, fits: bool
) -> tuple[list[str], list[str]]:
    """(reasons, notes) of a look at values: at full size where that fits, else at a part of the rows."""
    (workload,) = loaded.task.workloads_for(limits.target)
    own = workload.dims.get("rows")
    if fits and (_small(facts, own) or (limits.device == "cuda" and how(loaded, limits) == "whole")):
        device = "cpu" if limits.device is None else limits.device
        return _ask(isolation, loaded.directory, limits.target, device, None), []
    # What does not follow the rows (a loss) is easier to guess the more of them there are.
    follows = facts.rows is not None and len(facts.rows.outputs) == len(facts.outputs)
    for rows in _PROBE_ROWS if own is not None and follows else ():
        if own is not None and rows < own and _small(facts, rows):
            found = _ask(isolation, loaded.directory, limits.target, "cpu", rows)
            return found, [f"values looked at on {rows} of {own} rows"]
    return [], ["values not looked at"]


def _small(facts: ProblemFacts, rows: int | None) -> bool:
    """Whether a look on the host is affordable, at so many rows (None: whole)."""
    flops = facts.flops
    if rows is not None and facts.rows is not None:
        flops -= (facts.rows.rows - rows) * facts.rows.flops
    return probe_bytes(facts, rows) <= _PROBE_BYTES and flops <= _PROBE_FLOPS


def _ask(isolation: Isolation, folder: Path, target: Target, device: str, rows: int | None) -> list[str]:
    """Reasons."""
    try:
        answer = isolation.ask("probe", folder=str(folder), target=target, device=device, rows=rows)
    except Refused as refused:
        return [str(refused)]
    return [str(reason) for reason in answer["reasons"]]
