"""A/A calibration: what the clock reports for candidates that are the same. No student code takes part."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import Final, NamedTuple, get_args

from harness import stats
from harness.device.telemetry import MOST_DROPPED
from harness.judge.candidates import NULL, STUDENT, Candidates
from harness.judge.clock import Samples, constant_of
from harness.judge.guarded_buffers import Layout
from harness.judge.measurement import Measurement, Session, ratio, settled_judge
from harness.judge.problem import Problem, Tensors
from harness.judge.protocol import Numbers
from harness.judge.shared_memory import Transport
from harness.judge.worker_client import Source, WorkerClient
from harness.records import ClockName, LaneName, Protocol, Ratio, Target
from harness.records.timing import BlockTelemetry, Calibration, FalseAlarms, HandShake, SizeFigures
from harness.suite.catalogue import LoadedTask

PROCESSES = 4
BLOCKS = 10
COMPARISONS = 2000
"""For each size, protocol and clock: a rate of 5 % then has a standard error of 0.5 points."""
MINIMUM_EFFECT = 1.02
WIDEST_INTERVAL = 0.05
"""An A/A ratio with a wider interval means that the host is loaded (our choice)."""
TASK: Final = "l1/softmax"
"""Any shape can be made of it, and its reference is one operator of PyTorch."""
ROWS: Final[dict[Target, tuple[int, ...]]] = {"cpu": (8, 64, 384), "cuda": (64, 4096, 65536)}
_POOL: Final = 6
_CLOCKS: tuple[ClockName, ...] = ("inside", "outside")

Scores = Mapping[ClockName, Sequence[Sequence[float]]]


class Repeated(Problem):
    """Repeats a few inputs: drawing fresh ones takes most of the time, and nobody here replays answers."""

    @cached_property
    def _pool(self) -> list[Tensors]:
        return [super(Repeated, self).make_inputs() for _ in range(_POOL)]

    def make_inputs(self) -> Tensors:
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
        if transport.most_sets(Layout(problem)) >= numbers.batch_sets[0]:
            found.append(problem)
    return found


def calibrate(
    start: Callable[[Source], WorkerClient],
    loaded: LoadedTask,
    timed: Sequence[Problem],
    session: Session,
    *,
    processes: int = PROCESSES,
    blocks: int = BLOCKS,
) -> Calibration:
    """Time the reference of a task against itself at the sizes of `timed`; the caller holds the machine's
    lock. Raises InfraError."""
    names = [STUDENT, *(f"again {i}" for i in range(1, processes)), NULL]
    source = Source("reference", loaded.reference_path, "liftbench_reference", "reference")
    starts: dict[str, Callable[[], WorkerClient]] = {
        name: partial(start, Source("null") if name == NULL else source) for name in names
    }
    with ExitStack() as workers, settled_judge(session.judge_cpus):
        resident = {}
        # What a frozen process has started on a device continues: there each turn has its own process.
        for name in names if session.transport.stops_with_process else ():
            resident[name] = workers.enter_context(starts[name]())
            resident[name].load()
        numbers = replace(session.numbers, clean_blocks=blocks, most_blocks=blocks + 2, fresh_processes=False)
        own = replace(session, numbers=numbers)
        found = [_measure(problem, Candidates(starts, resident), own) for problem in timed]
    measured = [block for one in found for block in one.blocks]
    reasons = dict.fromkeys(reason for block in measured for reason in block.disturbed)
    disturbed = sum(bool(block.disturbed) for block in measured)
    wide = any(_is_wide(one.figures.ratio) for one in found)
    return Calibration(
        task=loaded.task.id,
        transport=session.transport.name,
        transport_facts=session.transport.facts(),
        processes=processes,
        sizes=tuple(one.figures for one in found),
        false_alarms=tuple(
            false_alarms([one.scores[clock] for one in found], protocol, clock, session.numbers.clean_blocks)
            for protocol, clock in itertools.product(get_args(Protocol), _CLOCKS)
        ),
        blocks=len(measured),
        disturbed_blocks=disturbed,
        disturbances=tuple(reasons),
        noisy=disturbed > MOST_DROPPED * len(measured) or wide,
    )


class _Found(NamedTuple):
    figures: SizeFigures
    scores: Scores
    blocks: tuple[BlockTelemetry, ...]


def _measure(problem: Problem, candidates: Candidates, session: Session) -> _Found:
    measurement = Measurement(problem, candidates, session)
    measurement.measure()
    found = measurement.scores
    timing = found.timing(STUDENT, trusted=True)
    rows = [name for name in candidates.start if name != NULL]
    scores = {
        clock: [list(found.block_us(name, clock, trusted=True).values()) for name in rows]
        for clock in _CLOCKS
    }
    figures = SizeFigures(
        workload=problem.workload.name,
        dtype=problem.dtype,
        bytes_moved=problem.bytes_moved,
        hand_shake=tuple(_hand_shake(*lane) for lane in measurement.samples[NULL].items()),
        lane=timing.lane,
        inside_us=timing.scored_lane.inside.mean_us,
        outside_us=timing.scored_lane.outside_us,
        uncertainty_us=timing.scored_lane.uncertainty_us,
        latency_us=timing.latency_us,
        ratio=_ratio(*scores["inside"][:2]),
        outside_ratio=_ratio(*scores["outside"][:2]),
        process_spread=process_spread(scores["inside"]) if candidates.resident else None,
    )
    return _Found(figures, scores, measurement.telemetry)


def _hand_shake(lane: LaneName, samples: Samples) -> HandShake:
    constant = constant_of(samples)
    values = [one.outside_us - constant.per_set_us * one.calls for one in samples.reveals]
    parts = statistics.quantiles(values, n=20, method="inclusive")
    median_us = statistics.median(values)
    return HandShake(lane=lane, reveals=len(values), c05_us=parts[0], median_us=median_us, p95_us=parts[-1])


def _ratio(first: Sequence[float], second: Sequence[float]) -> Ratio:
    return ratio([math.log(b / a) for a, b in zip(first, second, strict=True)])


def _is_wide(found: Ratio) -> bool:
    if found.low is None or found.high is None:
        return found.n < 2
    return (found.high - found.low) / (2 * found.value) > WIDEST_INTERVAL


def process_spread(rows: Sequence[Sequence[float]]) -> float | None:
    means = [statistics.fmean(math.log(value) for value in row) for row in rows]
    return math.expm1(statistics.stdev(means)) if len(means) > 1 else None


def false_alarms(
    sizes: Sequence[Sequence[Sequence[float]]],
    protocol: Protocol,
    clock: ClockName,
    draws: int,
) -> FalseAlarms:
    """How often one of two equal candidates is called faster, by resampling recorded blocks.

    sizes: for each size (processes, blocks) microseconds. `quick` draws one pair of processes and `draws` of
    its blocks; `full` draws `draws` pairs of processes and one block of each.
    """
    order = random.Random(0)  # draws nothing secret
    plain = gated = 0
    for rows in sizes:
        for _ in range(COMPARISONS):
            estimate = stats.log_ratio_interval(_drawn(rows, protocol, draws, order))
            faster = estimate.interval is not None and estimate.interval.low > 1.0
            plain += faster
            gated += faster and estimate.value >= MINIMUM_EFFECT
    total = COMPARISONS * len(sizes)
    rates = {"rate": plain / total, "rate_with_gate": gated / total}
    return FalseAlarms(protocol=protocol, clock=clock, comparisons=total, **rates)


def _drawn(
    rows: Sequence[Sequence[float]], protocol: Protocol, draws: int, order: random.Random
) -> list[float]:
    if protocol == "quick":
        first, second = order.sample(rows, 2)
        blocks = order.sample(range(len(first)), draws)
        return [math.log(second[block] / first[block]) for block in blocks]
    logs = []
    for _ in range(draws):
        first, second = order.sample(rows, 2)
        block = order.randrange(len(first))
        logs.append(math.log(second[block] / first[block]))
    return logs
