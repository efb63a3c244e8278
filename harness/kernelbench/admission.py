"""Which KernelBench problems make fair tasks on a target, and why the others do not.

Owns: the limits and the decision, kept in the cache. Does not own: what is known of a problem without values
(inspection.py) and with values (probe.py).
Invariant: nothing is shrunk to fit: what is too large is not admitted. Values may be looked at on a part of
the rows, which the record then says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.atomic import write_atomically
from harness.catalogue import LoadedTask
from harness.kernelbench.checkout import ProblemFile
from harness.kernelbench.conversion import Converted, convert_all
from harness.kernelbench.facts import ProblemFacts
from harness.kernelbench.isolation import Isolation, Refused, in_parallel
from harness.records import Record, Target
from harness.suite.sizes import DEVICE_SHARE, HOST_BYTES, gib, sizes

H200_BYTES = 141 * 10**9
"""Assumed where there is no GPU: the larger of the boards that the target is."""
_CPU_BYTES = DEVICE_SHARE * HOST_BYTES
"""As if it were a device of which projects may use their share."""
_WITH_INTERMEDIATES = 0.9
"""Of the memory, for what is judged with all that the float64 truth has alive in between [own]."""
_TRUTH_S = 5.0
# Own estimates of float64 work: one core of a laptop; a Hopper board whose convolutions are far from its peak
# of 34e12 (not measured on a GPU).
_FLOPS_PER_S: dict[Target, float] = {"cpu": 10e9, "cuda": 10e12}
_PROBE_BYTES = 3 << 30
"""Of all that a look at values may hold on the host."""
_PROBE_FLOPS = 20e9
_PROBE_ROWS = (8, 4, 2)
_VERSION = 1


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
    """With the judge's copies and the float64 truth, by the rule for all tasks (suite/sizes.py)."""
    flops: int | None = None

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
    """This machine's. Raises HarnessBug where the helper process fails."""
    if target == "cpu":
        return Limits(target, _CPU_BYTES, "cpu")
    isolation = Isolation()
    try:
        memory = isolation.ask("device")["memory_bytes"]
    finally:
        isolation.close()
    return Limits(target, memory or H200_BYTES, "cuda" if memory else None)


def probe_bytes(facts: ProblemFacts, share: float) -> int:
    """What a look at `share` of the rows holds at once: two draws, each in float32 and float64, and what
    lives in between."""
    rows = sum(t.size_bytes for t in (*facts.inputs, *facts.outputs)) + facts.peak_bytes
    return int(6 * (rows * share + sum(t.size_bytes for t in facts.parameters)))


def static_reasons(loaded: LoadedTask, facts: ProblemFacts, limits: Limits) -> list[str]:
    """Why a problem is no task here, as far as that shows without values."""
    reasons = []
    if facts.draws:
        reasons.append(f"its forward draws random numbers ({', '.join(facts.draws)}): dropout or the like")
    if facts.writes:
        reasons.append(f"its forward writes to {', '.join(facts.writes)}")
    (size,) = sizes(loaded.task, limits.target)
    if size.judged_bytes > limits.judged_bytes:
        limit = gib(limits.judged_bytes)
        reasons.append(f"too large for {limits.target}: {gib(size.judged_bytes)} to judge (limit {limit})")
    else:
        whole, most = size.judged_bytes + 2 * facts.peak_bytes, limits.memory_bytes * _WITH_INTERMEDIATES
        if whole > most:
            limit = gib(int(most))
            reasons.append(f"too large for {limits.target}: {gib(whole)} with intermediates (limit {limit})")
    work, at_most = facts.flops / 1e9, _FLOPS_PER_S[limits.target] * _TRUTH_S / 1e9
    if work > at_most:
        reasons.append(f"too much work for {limits.target}: {work:,.0f} GFLOP (limit {at_most:,.0f})")
    return reasons


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
    file = _file(one, limits)
    if file is None or not file.is_file():
        return None
    return Admission.model_validate_json(file.read_text()).model_copy(update={"file": str(one.problem.path)})


def admit(one: Converted, limits: Limits, isolation: Isolation) -> Admission:
    """Judge one problem, and keep the result."""
    make = functools.partial(
        Admission,
        task=one.problem.id,
        file=str(one.problem.path),
        digest=None if one.loaded is None else one.loaded.task.digest,
        target=limits.target,
        memory_bytes=limits.memory_bytes,
    )
    facts = one.facts
    if facts is None or one.loaded is None:
        return make(reasons=(one.refusal or "it could not be read",))
    reasons, notes = static_reasons(one.loaded, facts, limits), []
    if not facts.draws and not facts.writes:
        found, said = _look(one.loaded.directory, facts, limits, isolation, fits=not reasons)
        reasons += found
        notes += said
    if facts.batch_statistics:
        notes.append("train-mode batch norm: over the batch; running statistics are no operands")
    made = make(
        reasons=tuple(reasons),
        notes=tuple(notes),
        inputs=tuple(t.shape for t in facts.inputs),
        outputs=tuple(t.shape for t in facts.outputs),
        parameters=len(facts.parameters),
        size_bytes=facts.operand_bytes,
        judged_bytes=sizes(one.loaded.task, limits.target)[0].judged_bytes,
        flops=facts.flops,
    )
    file = _file(one, limits)
    if file is not None:
        write_atomically(file, made.model_dump_json())
    return made


def _look(
    folder: Path, facts: ProblemFacts, limits: Limits, isolation: Isolation, *, fits: bool
) -> tuple[list[str], list[str]]:
    """(reasons, notes) of a look at values: at full size where that fits, else at a part of the rows."""
    if limits.device is not None and fits and (limits.device != "cpu" or _small(facts, 1.0)):
        found = _ask(isolation, folder, limits.device, None)
        return (found or []), []
    rows = facts.inputs[0].shape[0] if facts.inputs[0].shape else 0
    for some in (some for some in _PROBE_ROWS if some < rows and _small(facts, some / rows)):
        found = _ask(isolation, folder, "cpu", [rows, some])
        if found is not None:
            return found, [f"values looked at on {some} of {rows} rows only"]
    return [], ["values not looked at: too large for this machine, and no part stands for the whole"]


def _small(facts: ProblemFacts, share: float) -> bool:
    return probe_bytes(facts, share) <= _PROBE_BYTES and facts.flops * share <= _PROBE_FLOPS


def _ask(isolation: Isolation, folder: Path, device: str, rows: list[int] | None) -> list[str] | None:
    """Reasons; None where a part of the rows does not stand for the whole."""
    try:
        answer = isolation.ask("probe", folder=str(folder), device=device, rows=rows)
    except Refused as refused:
        # Shapes that do not fit together any more are no fault of the problem's.
        return [str(refused)] if rows is None else None
    return [str(reason) for reason in answer["reasons"]] if answer["followed"] else None
