"""One problem, measured: blocks of turns, when to stop, and the ratio.

Owns: ABBA blocks, disturbed ones, the ratio and its interval, and when a claim is a cheat.
Does not own: reveals (bench.py), lives of workers (lineup.py), the clock's rule (clock.py), several workloads
(timing.py).
Invariant: every output of a student's timed call is verified; one log ratio per block; both sides of a ratio
are by the same clock and in the same lane.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from harness import stats
from harness.judge.bench import Bench, Lanes, Visit, lanes
from harness.judge.claims import SecondaryMode
from harness.judge.clock import (
    Constant,
    LaneName,
    ReferenceClock,
    block_means,
    cheaper_in_batches,
    claim_too_little,
    claims_too_little,
    constant_of,
    contender_timing,
    reference_clock,
)
from harness.judge.conditions import Conditions
from harness.judge.contender import Contender, Failed
from harness.judge.lineup import NULL, STUDENT, Contenders, Lineup
from harness.judge.physics import Board, impossible, judge_physics, work_of
from harness.judge.problem import Problem
from harness.judge.protocol import CONFIRMATIONS, Numbers, RatioUnit
from harness.judge.transport import Transport
from harness.outcome import Cause
from harness.records import (
    ContenderTiming,
    Finding,
    Lane,
    PhysicalLimit,
    Ratio,
    Secondary,
    WorkloadTiming,
)
from harness.records.telemetry import BlockTelemetry
from harness.telemetry import Turn, block_telemetry

NOISY = "noisy host"
UNFINISHED = "interval not reached"
CHEAPER_IN_BATCHES = "cheaper in batches"


@dataclass(frozen=True)
class Session:
    """What all measurements of one grade share."""

    numbers: Numbers
    transport: Transport
    conditions: Conditions
    judge_cpus: frozenset[int] | None = None
    """Where the judge sits while it measures."""
    board: Board | None = None
    """What can be reached at all; None where that is not known."""


def ratio(logs: list[float], unit: RatioUnit = "blocks") -> Ratio:
    """The geometric mean of ratios, with its t interval."""
    estimate = stats.log_ratio_interval(logs)
    interval = estimate.interval
    return Ratio(
        value=estimate.ratio,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        n=estimate.n,
        unit=unit,
    )


@dataclass(frozen=True)
class Measured:
    """One problem, measured."""

    timing: WorkloadTiming
    logs: list[float]
    """One log ratio per block, against the fastest reference."""
    flags: tuple[str, ...]
    notes: tuple[str, ...]


class Measurement:
    """The blocks of one problem."""

    def __init__(self, problem: Problem, contenders: Contenders, session: Session) -> None:
        self._numbers = session.numbers
        self._conditions = session.conditions
        self._board = session.board
        self._bench = Bench(problem, session.numbers, session.transport)
        self._lineup = Lineup(self._bench, contenders)
        self._random = random.SystemRandom()
        self.samples: dict[str, Lanes] = {}
        """By contender. Public, so that a calibration can resample them."""
        self._spent_s: dict[str, float] = {}
        self._disturbed: dict[int, list[str]] = {}
        self._looks: dict[int, list[Turn]] = {}
        self._flags: set[str] = set()
        self._secondary: dict[str, tuple[Secondary, ...]] = {}

    def run(self) -> Measured:
        """Measure, verify and judge. Raises Failed."""
        self.measure()
        return self._result()

    def measure(self) -> None:
        """Measure until the protocol is satisfied, or the blocks are used up.

        Raises Failed; then too the residents are thawed and can go on.
        """
        try:
            self._measure()
        finally:
            self._lineup.release()

    def _measure(self) -> None:
        self._lineup.prepare()
        self.samples = {name: lanes() for name in self._lineup.names}
        self._spent_s = dict.fromkeys(self.samples, 0.0)
        for block in range(self._numbers.most_blocks):
            self._block(block)
            if block + 1 - len(self._disturbed) >= self._numbers.clean_blocks and self._enough():
                break
        else:
            if self._numbers.half_width is not None:
                self._flags.add(UNFINISHED)
        self._drop_disturbed_blocks()
        if self._numbers.secondary and not self._bench.transport.stops_with_process:
            self._secondary = {name: self._secondary_of(name) for name in self.samples if name != NULL}

    def _secondary_of(self, name: str) -> tuple[Secondary, ...]:
        """What the worker says of other ways of calling: on a device only, and never ranked."""
        # `warm` calls twice on the same operands, which an op that updates them in place does not survive.
        in_place = any(o.role in ("inout", "partial") for o in self._bench.problem.task.operands)
        modes: list[SecondaryMode] = ["queued", "graph"] if in_place else ["queued", "graph", "warm"]
        with self._lineup.turn(name) as contender:
            found = [self._bench.secondary(contender, mode, keep=name == STUDENT) for mode in modes]
        self._bench.verify()
        return tuple(one for one in found if one is not None)

    def _block(self, block: int) -> None:
        """ABBA: every contender twice, in mirrored order; what is first changes from block to block."""
        names = list(self.samples)
        self._random.shuffle(names)
        for name in [*names, *reversed(names)]:
            self._turn(name, block)

    def _turn(self, name: str, block: int) -> None:
        visit = self._visit(name)
        if self._conditions.around_lives:
            with self._conditions.watched() as watched, self._lineup.turn(name) as contender:
                self._visits(contender, name, visit, block)
        else:
            with self._lineup.turn(name) as contender, self._conditions.watched() as watched:
                self._visits(contender, name, visit, block)
        if watched.reason is not None:
            self._disturbed.setdefault(block, []).append(watched.reason)
        if watched.looks is not None:
            self._looks.setdefault(block, []).append(watched.looks)
        if name == STUDENT:
            self._bench.verify()

    def _visits(self, contender: Contender, name: str, visit: Visit, block: int) -> None:
        """One visit, and more until the turn's time is over."""
        began, keep = time.monotonic(), name == STUDENT
        while True:
            pace_us = self._bench.reveal(contender, visit, self.samples[name], block, keep=keep)
            self._lineup.seen(name, pace_us)
            if time.monotonic() - began >= self._turn_s:
                break
            visit = self._visit(name)
        self._spent_s[name] += time.monotonic() - began

    def _visit(self, name: str) -> Visit:
        return self._bench.visit(self._lineup.pace_us.get(name, 0.0))

    @property
    def _turn_s(self) -> float:
        """How long a turn goes on; one visit where it is 0."""
        return self._numbers.most_s / (2 * self._numbers.clean_blocks)

    def _enough(self) -> bool:
        """Whether the samples of every contender satisfy the protocol."""
        return self._numbers.half_width is None or all(
            self._contender_enough(name) for name in self.samples if name != NULL
        )

    def _contender_enough(self, name: str) -> bool:
        numbers, both = self._numbers, self.samples[name]
        reveals = [one for samples in both.values() for one in samples.reveals]
        if self._spent_s[name] >= numbers.most_s:
            self._flags.add(UNFINISHED)
            return True
        singles = [one.outside_us for one in both["call"].reveals]
        half = stats.median_half_width(singles)
        return (
            sum(one.sets for one in reveals) >= numbers.least_samples
            and sum(one.outside_us for one in reveals) >= numbers.least_measured_s * 1e6
            and half is not None
            and half <= (numbers.half_width or math.inf) * statistics.median(singles)
        )

    def _drop_disturbed_blocks(self) -> None:
        """Whole blocks only, and only if enough are left."""
        clean = set(self.samples[STUDENT]["call"].blocks) - set(self._disturbed)
        if len(clean) < self._numbers.clean_blocks:
            if self._disturbed:
                self._flags.add(NOISY)
            return
        self.samples = {
            name: {lane: samples.keep(clean) for lane, samples in both.items()}
            for name, both in self.samples.items()
        }

    # --- the result ----------------------------------------------------------------------------

    @cached_property
    def constants(self) -> dict[LaneName, Constant]:
        """Of the null project, once all is measured: it goes over all pairs of reveals."""
        return {lane: constant_of(samples) for lane, samples in self.samples[NULL].items()}

    @property
    def telemetry(self) -> tuple[BlockTelemetry, ...]:
        """Every block, dropped ones too."""
        reasons = {block: list(dict.fromkeys(found)) for block, found in self._disturbed.items()}
        return tuple(block_telemetry(b, looks, reasons.get(b, [])) for b, looks in self._looks.items())

    def timing(self, name: str, clock: ReferenceClock = "inside") -> ContenderTiming:
        """One contender's figures."""
        timing = self._timing_of(name, self.samples[name], clock)
        return timing.model_copy(update={"secondary": self._secondary.get(name, ())})

    def _timing_of(self, name: str, samples: Lanes, clock: ReferenceClock = "inside") -> ContenderTiming:
        return contender_timing(
            name,
            samples,
            self.constants,
            trusted=name != STUDENT,
            clock=clock,
            null_latency_us=self.samples[NULL]["call"].mean_latency_us,
        )

    def block_scores(self, name: str, lane: LaneName, clock: ReferenceClock) -> dict[int, float]:
        """Mean microseconds per call, block by block."""
        samples, constant, trusted = self.samples[name][lane], self.constants[lane], name != STUDENT
        if trusted:
            return block_means(samples, constant, clock, trusted=True)
        if clock == "inside":
            lowest = next(one.lowest_us for one in self.timing(name).lanes if one.name == lane)
            return block_means(samples, constant, clock, trusted=False, lowest_us=lowest or 0.0)
        outside = block_means(samples, constant, "outside", trusted=False)
        if not samples.claimed:
            return outside
        # A student whose claims are not used is not helped by low ones, but held to high ones.
        inside = block_means(samples, constant, "inside", trusted=False)
        return {block: max(outside[block], inside[block]) for block in outside}

    def _result(self) -> Measured:
        problem = self._bench.problem
        student = self.timing(STUDENT)
        if claims_too_little(student) and all(map(claims_too_little, self._confirmations())):
            raise Failed(_false_claim(problem, student))
        clock = reference_clock(student)
        references = [self.timing(n, clock) for n in self.samples if n not in (STUDENT, NULL)]
        fastest = min(references, key=lambda one: one.score_us)
        limit = self._physics(student.score_us, fastest.score_us)
        ours = self.block_scores(STUDENT, student.lane, clock)
        # In the student's lane, so that like is compared with like.
        theirs = self.block_scores(fastest.name, student.lane, clock)
        logs = [math.log(theirs[b] / ours[b]) for b in sorted(ours)]
        if cheaper_in_batches(student, fastest):
            self._flags.add(CHEAPER_IN_BATCHES)
        timing = WorkloadTiming(
            workload=problem.workload.name,
            dtype=problem.dtype,
            student=student,
            references=tuple(references),
            speedup=ratio(logs, self._numbers.unit),
            clock="inside" if student.scored_lane.matched else "outside",
            bytes_moved=problem.bytes_moved,
            flops=problem.flops,
            speed_of_light=None if limit is None else limit.fraction,
            physics=limit,
            telemetry=self.telemetry,
        )
        reasons = sorted({reason for reasons in self._disturbed.values() for reason in reasons})
        notes = [f"{problem.label}: blocks disturbed: {', '.join(reasons)}"] if reasons else []
        return Measured(timing, logs, tuple(sorted(self._flags)), (*self._lineup.notes, *notes))

    def _physics(self, score_us: float, reference_us: float) -> PhysicalLimit | None:
        """How the score compares with what the board can do. Raises Failed where it is impossible."""
        work = work_of(self._bench.problem)
        limit = judge_physics(score_us, reference_us, work, self._board)
        if limit is None or not limit.impossible:
            return limit
        again = [judge_physics(t.score_us, reference_us, work, self._board) for t in self._confirmations()]
        finding = impossible(self._bench.problem.label, [limit, *(one for one in again if one is not None)])
        if finding is not None:
            raise Failed(finding)
        return limit

    def _confirmations(self) -> Iterator[ContenderTiming]:
        """What fresh processes of the student come to, one by one."""
        for _ in range(CONFIRMATIONS):
            samples = lanes()
            with self._lineup.fresh(STUDENT) as contender:
                for block in range(self._numbers.clean_blocks):
                    self._bench.reveal(contender, self._visit(STUDENT), samples, block, keep=True)
            self._bench.verify()
            yield self._timing_of(STUDENT, samples)


def _false_claim(problem: Problem, timing: ContenderTiming) -> Finding:
    def falseness(one: Lane) -> float:
        return one.outside_us / max(one.inside.mean_us, 1e-3)

    worst = max(filter(claim_too_little, timing.lanes), key=falseness)
    return Finding(
        cause=Cause.CLOCK,
        message=f"{problem.label}: the process claims {worst.inside.mean_us:.1f} us a call, the outside "
        f"clock says {worst.outside_us:.1f} +- {worst.uncertainty_us:.1f} us, in 3 of 3 fresh processes",
    )
