"""The clock, tried on pairs whose ratio is known: equal ones, and such that one takes twice the other's time.

No student code takes part. Every pair has processes of its own, and is compared as a student and a reference.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from harness.device.telemetry import MOST_DROPPED
from harness.judge import known_time
from harness.judge.candidates import EAGER, NULL, STUDENT, Candidates, reference_source
from harness.judge.clock import Lanes, Samples, constant_of
from harness.judge.guarded_buffers import Layout
from harness.judge.measurement import Measurement, Session, ratio, settled_judge
from harness.judge.problem import Problem, Tensors
from harness.judge.protocol import Numbers
from harness.judge.scoring import UNRESOLVED, Scores
from harness.judge.shared_memory import Transport
from harness.judge.worker_client import Source, WorkerClient
from harness.records import LaneName, Target
from harness.records.timing import Calibration, CalibrationPair, HandShake
from harness.suite.catalogue import LoadedTask

PAIRS: Final = 30
"""Of each kind."""
WIDEST_INTERVAL: Final = 0.05
"""Half-width of a ratio's interval: where the median is wider, the host is loaded (our choice)."""
TASK: Final = "l1/softmax"
"""Any shape can be made of it, and its reference is one operator of PyTorch."""
ROWS: Final[dict[Target, tuple[int, ...]]] = {"cpu": (8, 64, 384), "cuda": (64, 4096, 65536)}
_POOL: Final = 6
_SHARE_STAGE: Final = 3
"""Workloads that share a stage's time, of which a pair is one: tasks have 2 or 3."""


class Repeated(Problem):
    """Repeats a few inputs: drawing fresh ones takes most of the time, and nobody here replays answers."""

    @cached_property
    def _pool(self) -> list[Tensors]:
        return [super(Repeated, self).make_inputs() for _ in range(_POOL)]

    def make_inputs(self, key: bytes | None = None) -> Tensors:
        return random.choice(self._pool)


def sizes_of(loaded: LoadedTask, target: Target, transport: Transport, numbers: Numbers) -> list[Problem]:
    """The first timed workload of l1/softmax with few, some and many rows, in the target's first dtype;
    without sizes of which a batch would not fit into memory."""
    base = next(one for one in loaded.task.workloads_for(target) if one.timed)
    dtype = loaded.task.dtypes[target][0]
    found: list[Problem] = []
    for rows in ROWS[target]:
        workload = base.model_copy(update={"name": f"{rows}_rows", "dims": {**base.dims, "rows": rows}})
        problem = Repeated(loaded, workload, dtype, device=transport.device, kernels=transport.kernels)
        if transport.most_sets(Layout(problem), 1) >= numbers.batch_sets[0]:
            found.append(problem)
    return found


def calibrate(
    start: Callable[[Source], WorkerClient],
    loaded: LoadedTask,
    sizes: Sequence[Problem],
    session: Session,
    *,
    equal: int = PAIRS,
    known: int = PAIRS,
) -> Calibration:
    """Measure that many pairs of equal references, at each of `sizes` in turn, and of one that takes half as
    long; the caller holds the machine's lock. Raises InfraError."""
    reference = reference_source(loaded)
    slow = Source("reference", Path(known_time.__file__), "liftbench_known_time", "long")
    tried = [(sizes[i % len(sizes)], reference, reference, 1.0) for i in range(equal)]
    truth = known_time.LONG_US / known_time.SHORT_US
    tried += [(sizes[0], replace(slow, function="short"), slow, truth) for _ in range(known)]
    random.shuffle(tried)
    with settled_judge(session.judge_cpus):
        found = [_Pair(start, *one, session) for one in tried]
    measured = [block for one in found for block in one.measurement.telemetry]
    disturbed = sum(bool(block.disturbed) for block in measured)
    pairs = tuple(one.figures for one in found)
    widths = [one.half_width for one in pairs if one.half_width is not None]
    wide = not widths or statistics.median(widths) > WIDEST_INTERVAL
    shares = [one.measurement.timed_share for one in found]
    return Calibration(
        task=loaded.task.id,
        transport=session.transport.name,
        transport_facts=session.transport.facts(),
        pairs=pairs,
        hand_shake=tuple(_hand_shakes(found)),
        timed_share=statistics.fmean(shares),
        blocks=len(measured),
        disturbed_blocks=disturbed,
        disturbances=tuple(dict.fromkeys(reason for block in measured for reason in block.disturbed)),
        noisy=disturbed > MOST_DROPPED * len(measured) or wide,
    )


class _Pair:
    """One pair, measured."""

    def __init__(
        self,
        start: Callable[[Source], WorkerClient],
        problem: Problem,
        student: Source,
        reference: Source,
        truth: float,
        session: Session,
    ) -> None:
        sources = {STUDENT: student, EAGER: reference}
        if not session.transport.stops_with_process:
            sources[NULL] = Source("null")
        starts: dict[str, Callable[[], WorkerClient]] = {n: partial(start, one) for n, one in sources.items()}
        with ExitStack() as workers:
            resident = {}
            # What a frozen process has started on a device continues: there each turn has its own process.
            for name in starts if session.transport.stops_with_process else ():
                resident[name] = workers.enter_context(starts[name]())
                resident[name].load()
            own = replace(session, numbers=replace(session.numbers, fresh_processes=False))
            self.measurement = Measurement(problem, Candidates(starts, resident), own, _SHARE_STAGE)
            self.measurement.measure()
        samples = self.measurement.samples
        compared = Scores({**samples, STUDENT: _without_copies(samples[STUDENT])}).compare()
        lane = compared.student.scored_lane
        self.figures = CalibrationPair(
            workload=problem.workload.name,
            bytes_moved=problem.bytes_moved,
            truth=truth,
            ratio=ratio(compared.logs, resolved=UNRESOLVED not in compared.flags),
            clock=compared.clock,
            outside_us=lane.outside_us,
            uncertainty_us=lane.uncertainty_us,
            flags=tuple(sorted(compared.flags)),
        )


def _without_copies(samples: Lanes) -> Lanes:
    """A reference in a student's place returns its results; copying them is no part of its time."""
    return {
        lane: Samples(
            [replace(one, outside_us=one.outside_us - one.aside_us, aside_us=0.0) for one in some.reveals]
        )
        for lane, some in samples.items()
    }


def _hand_shakes(pairs: Sequence[_Pair]) -> Iterator[HandShake]:
    """What reveals without work took in the first pair of each size."""
    first = {pair.figures.bytes_moved: pair for pair in reversed(pairs)}
    for size, pair in sorted(first.items()):
        for lane, samples in pair.measurement.scores.overheads.items():
            yield _hand_shake(size, lane, samples)


def _hand_shake(size: int, lane: LaneName, samples: Samples) -> HandShake:
    constant = constant_of(samples)
    values = [one.outside_us - constant.per_set_us * one.calls for one in samples.reveals]
    parts = statistics.quantiles(values, n=20, method="inclusive")
    return HandShake(
        bytes_moved=size,
        lane=lane,
        reveals=len(values),
        c05_us=parts[0],
        median_us=statistics.median(values),
        p95_us=parts[-1],
        per_set_us=constant.per_set_us,
    )
