"""A/A calibration: what our clock says of contenders that are the same.

Nothing of a student takes part, and the figures come from the machinery that grades students.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

from harness import stats
from harness.device.conditions import TelemetryConditions, pinned, settle_judge
from harness.device.telemetry import MOST_DROPPED, Telemetry
from harness.judge.candidates import NULL, STUDENT, Candidates
from harness.judge.clock import ClockName, Constant, block_means, constant_of, contender_timing
from harness.judge.measurement import Measurement, Session, ratio
from harness.judge.problem import Problem, Tensors
from harness.judge.protocol import Numbers
from harness.judge.sampler import Lanes
from harness.judge.transport import Transport
from harness.judge.worker_client import WorkerClient
from harness.judge.worker_job import Source
from harness.records import Protocol, Ratio, Target
from harness.records.timing import BlockTelemetry, Calibration, FalseAlarms, HandShake, SizeFigures
from harness.suite.catalogue import LoadedTask

PROCESSES = 4
"""Of the same reference; pairs of them are compared. More would cost half a second and a warm-up each."""
BLOCKS = 10
"""Recorded for each size; comparisons draw from them."""
COMPARISONS = 2000
"""Drawn for each size, protocol and clock: a rate of 5 % then has a standard error of 0.5 points."""
MINIMUM_EFFECT = 1.02
WIDEST_INTERVAL = 0.05
"""Of an A/A ratio: a wider one means that the host is loaded (protocols.md)."""
TASK: Final = "l1/softmax"
"""Any shape can be made of it, and its reference is one operator of PyTorch."""
ROWS: Final[dict[Target, tuple[int, ...]]] = {"cpu": (8, 64, 384), "cuda": (64, 4096, 65536)}
_POOL: Final = 6
_CLOCKS: tuple[ClockName, ...] = ("inside", "outside")

Start = Callable[[Source], WorkerClient]
Scores = Mapping[ClockName, Sequence[Sequence[float]]]
"""Microseconds per call: one row per process, one column per block."""


class Repeated(Problem):
    """A problem that shows the same few inputs again and again: nobody in a calibration would replay them,
    and drawing fresh ones takes most of the time."""

    @cached_property
    def _pool(self) -> list[Tensors]:
        return [super(Repeated, self).make_inputs() for _ in range(_POOL)]

    def make_inputs(self) -> Tensors:
        """One of the few."""
        return random.choice(self._pool)


def sizes_of(loaded: LoadedTask, target: Target, transport: Transport, numbers: Numbers) -> list[Problem]:
    """The first timed workload of l1/softmax with few, some and many rows, in the target's first dtype.

    Sizes of which a batch would not fit are left out.
    """
    base = next(one for one in loaded.task.workloads_for(target) if one.timed)
    dtype = loaded.task.dtypes[target][0]
    found: list[Problem] = []
    for rows in ROWS[target]:
        workload = base.model_copy(update={"name": f"{rows}_rows", "dims": {**base.dims, "rows": rows}})
        problem = Repeated(loaded, workload, dtype, device=transport.device)
        if problem.bytes_moved * numbers.batch_sets[1] <= transport.live_bytes:
            found.append(problem)
    return found


@dataclass(frozen=True)
class Setting:
    """Where a calibration is made."""

    transport: Transport
    telemetry: Telemetry
    numbers: Numbers
    """Of `quick`."""
    judge_cpus: frozenset[int] | None = None
    processes: int = PROCESSES
    blocks: int = BLOCKS


def calibrate(start: Start, loaded: LoadedTask, timed: Sequence[Problem], setting: Setting) -> Calibration:
    """Time the reference of a task against itself at the sizes of `timed`; nobody else may measure.

    `start` gives a worker that is not loaded yet. Raises InfraError and its kinds.
    """
    names = [STUDENT, *(f"again {i}" for i in range(1, setting.processes)), NULL]
    source = Source("reference", loaded.reference_path, "liftbench_reference", "reference")
    sources = {name: Source("null") if name == NULL else source for name in names}
    starts: dict[str, Callable[[], WorkerClient]] = {
        name: partial(start, one) for name, one in sources.items()
    }
    settle_judge()
    with ExitStack() as open_workers, pinned(setting.judge_cpus):
        resident = {}
        # What a frozen process has started on a device goes on: there each turn has a process of its own.
        for name in names if setting.transport.stops_with_process else ():
            resident[name] = starts[name]()
            open_workers.callback(resident[name].close)
            resident[name].load()
        found = [_measure(problem, Candidates(starts, resident), setting) for problem in timed]
    blocks = [block for one in found for block in one.blocks]
    reasons = dict.fromkeys(reason for block in blocks for reason in block.disturbed)
    disturbed = sum(bool(block.disturbed) for block in blocks)
    wide = [one.figures for one in found if _half_width(one.figures.ratio) > WIDEST_INTERVAL]
    return Calibration(
        task=loaded.task.id,
        transport=setting.transport.name,
        transport_facts=setting.transport.facts(),
        processes=setting.processes,
        sizes=tuple(one.figures for one in found),
        false_alarms=tuple(_alarms([one.scores for one in found], setting.numbers.clean_blocks)),
        blocks=len(blocks),
        disturbed_blocks=disturbed,
        disturbances=tuple(reasons),
        noisy=disturbed > MOST_DROPPED * len(blocks) or bool(wide),
    )


@dataclass(frozen=True)
class _Found:
    """One size."""

    figures: SizeFigures
    scores: Scores
    blocks: tuple[BlockTelemetry, ...]


def _measure(problem: Problem, contenders: Candidates, setting: Setting) -> _Found:
    numbers = replace(
        setting.numbers, clean_blocks=setting.blocks, most_blocks=setting.blocks + 2, fresh_processes=False
    )
    conditions = TelemetryConditions(setting.telemetry, len(contenders.resident))
    session = Session(numbers, setting.transport, conditions, setting.judge_cpus)
    measurement = Measurement(problem, contenders, session)
    measurement.measure()
    samples, constants = measurement.samples, measurement.constants
    timing = contender_timing(STUDENT, samples[STUDENT], constants, trusted=True)
    rows = [name for name in contenders.start if name != NULL]
    constant = constants[timing.lane]
    scores: dict[ClockName, list[list[float]]] = {
        clock: [list(_row(samples[name], timing.lane, constant, clock)) for name in rows] for clock in _CLOCKS
    }
    figures = SizeFigures(
        workload=problem.workload.name,
        dtype=problem.dtype,
        bytes_moved=problem.bytes_moved,
        hand_shake=tuple(_hand_shake(lane, samples[NULL]) for lane in samples[NULL]),
        lane=timing.lane,
        inside_us=timing.scored_lane.inside.mean_us,
        outside_us=timing.scored_lane.outside_us,
        uncertainty_us=timing.scored_lane.uncertainty_us,
        latency_us=timing.latency_us,
        ratio=ratio(_logs(scores["inside"][0], scores["inside"][1])),
        outside_ratio=ratio(_logs(scores["outside"][0], scores["outside"][1])),
        process_spread=process_spread(scores["inside"]) if contenders.resident else None,
    )
    return _Found(figures, scores, measurement.telemetry)


def _row(samples: Lanes, lane: str, constant: Constant, clock: ClockName) -> Sequence[float]:
    chosen = samples["call" if lane == "call" else "batch"]
    means = block_means(chosen, constant, clock, trusted=True)
    return [means[block] for block in sorted(means)]


def _hand_shake(lane: str, samples: Lanes) -> HandShake:
    chosen = samples["call" if lane == "call" else "batch"]
    constant = constant_of(chosen)
    values = [one.outside_us - constant.per_set_us * one.sets for one in chosen.reveals]
    high = statistics.quantiles(values, n=20, method="inclusive")[-1]
    return HandShake(
        lane="call" if lane == "call" else "batch",
        reveals=len(values),
        c05_us=constant.low_us,
        median_us=statistics.median(values),
        p95_us=high,
    )


def _logs(first: Sequence[float], second: Sequence[float]) -> list[float]:
    return [math.log(b / a) for a, b in zip(first, second, strict=True)]


def _half_width(found: Ratio) -> float:
    """Relative; there is no interval over one block, nor where all are equal."""
    if found.low is None or found.high is None:
        return math.inf if found.n < 2 else 0.0
    return (found.high - found.low) / (2 * found.value)


def process_spread(rows: Sequence[Sequence[float]]) -> float | None:
    """Standard deviation, as a share, of the mean of equal processes; None for fewer than 2.

    rows: (processes, blocks), microseconds. An interval over blocks of one pair cannot see this.
    """
    means = [statistics.fmean(math.log(value) for value in row) for row in rows]
    return math.expm1(statistics.stdev(means)) if len(means) > 1 else None


def _alarms(sizes: Sequence[Scores], clean_blocks: int) -> list[FalseAlarms]:
    protocols: tuple[Protocol, ...] = ("quick", "full")
    return [
        false_alarms([scores[clock] for scores in sizes], protocol, clock, clean_blocks)
        for protocol, clock in itertools.product(protocols, _CLOCKS)
    ]


def false_alarms(
    sizes: Sequence[Sequence[Sequence[float]]],
    protocol: Protocol,
    clock: ClockName,
    draws: int,
    *,
    comparisons: int = COMPARISONS,
    seed: int = 0,
) -> FalseAlarms:
    """How often one of two equal contenders is called faster, by resampling recorded blocks.

    sizes: for each size (processes, blocks) microseconds, 2 processes and `draws` blocks or more. `quick`:
    one pair of processes, `draws` of its blocks. `full`: `draws` pairs of processes, one block of each; a
    process may be drawn again, so with few of them the rate is approximate.
    """
    order = random.Random(seed)  # nothing secret is drawn from it
    plain = gated = 0
    for rows in sizes:
        for _ in range(comparisons):
            estimate = stats.log_ratio_interval(_drawn(rows, protocol, draws, order))
            faster = estimate.interval is not None and estimate.interval.low > 1.0
            plain += faster
            gated += faster and estimate.ratio >= MINIMUM_EFFECT
    total = comparisons * len(sizes)
    return FalseAlarms(
        protocol=protocol,
        clock=clock,
        comparisons=total,
        rate=plain / total,
        rate_with_gate=gated / total,
    )


def _drawn(
    rows: Sequence[Sequence[float]], protocol: Protocol, draws: int, order: random.Random
) -> list[float]:
    if protocol == "quick":
        first, second = order.sample(range(len(rows)), 2)
        blocks = order.sample(range(len(rows[first])), draws)
        return [math.log(rows[second][block] / rows[first][block]) for block in blocks]
    logs = []
    for _ in range(draws):
        first, second = order.sample(range(len(rows)), 2)
        block = order.randrange(len(rows[first]))
        logs.append(math.log(rows[second][block] / rows[first][block]))
    return logs
