"""The time stage: how fast is a correct project against its references?

Owns: contenders in ABBA blocks, verification of every timed output, the ratio and its interval.
Does not own: the clock's rule (clock.py) or the lock that keeps the machine quiet (grade.py).
Invariant: every output of a student's timed call is verified; only one contender's threads run while
it is timed; one log ratio per block.
"""

from __future__ import annotations

import ctypes
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from harness import stats
from harness.judge.arena import Arena, Layout
from harness.judge.check import Verifier
from harness.judge.clock import (
    Constant,
    LaneName,
    Samples,
    block_means,
    claims_too_little,
    constant_of,
    contender_timing,
)
from harness.judge.contender import Contender, Failed
from harness.judge.problem import Problem, Tensors
from harness.outcome import Cause
from harness.records import (
    ContenderTiming,
    Finding,
    Ratio,
    TimingResult,
    WorkloadTiming,
)

STUDENT = "student"
_NULL = "null"
_WARM_UP_S = 0.5  # protocols.md: at least 10 calls and 0.5 s
_WARM_UP_CALLS = 10
_CLEAN_BLOCKS, _MAX_BLOCKS = 5, 7
"""`quick` measures until it has 5 blocks that nothing disturbed; the full protocol's interval decides."""
_BATCH_SETS = (2, 4)
_CALLS_PER_VISIT = (1, 3)
_LIVE_BYTES = 256 << 20
_CONFIRMATIONS = 2
"""Fresh processes that must repeat a false claim before it is called a cheat (3 in all)."""


@dataclass(frozen=True)
class Taken:
    """One reveal of the student's, waiting to be verified."""

    arena: Arena
    """Closed: only its layout and its own copy of the inputs are used."""
    inputs: list[Tensors]
    snapshot: torch.Tensor


@dataclass
class _Bench:
    """One problem with everything that is needed to time contenders on it."""

    problem: Problem
    layout: Layout
    max_sets: int
    inputs: list[Tensors]
    """For warm-up."""
    random: random.SystemRandom = field(default_factory=random.SystemRandom)

    def plan(self, contender: Contender) -> None:
        contender.plan(self.layout, self.max_sets, dict(self.problem.workload.scalars))

    def warm_up(self, contender: Contender, seconds: float = _WARM_UP_S) -> None:
        """At least 10 calls and `seconds` over the whole pool of addresses."""
        start, rounds, calls = time.perf_counter(), 1, 0
        while calls < _WARM_UP_CALLS or time.perf_counter() - start < seconds:
            arena = Arena(self.layout, self.inputs, 0xFF)
            began = time.perf_counter()
            try:
                contender.call(arena, len(self.inputs), f"while warming up on {self.problem.label}", rounds)
            finally:
                arena.close()
            calls += rounds * len(self.inputs)
            # Grow towards a reveal of a tenth of a second, so that few are needed.
            took = time.perf_counter() - began
            rounds = min(256, max(rounds, int(rounds * 0.1 / max(took, 1e-4))))

    def reveal(
        self, contender: Contender, sets: int, taken: list[Taken] | None, samples: Samples, block: int
    ) -> None:
        """One reveal of fresh secret inputs; what came back is added to `taken`, to be verified.

        Nothing is verified here, so that every contender, the null project too, wakes up after the
        same pause and to the same caches.
        """
        inputs = [self.problem.make_inputs() for _ in range(sets)]
        arena = Arena(self.layout, inputs, 0xFF)
        try:
            snapshot, times = contender.call(arena, sets, f"while timed on {self.problem.label}")
        finally:
            arena.close()
        samples.add(block, sets, times)
        if taken is not None:
            taken.append(Taken(arena, inputs, snapshot))

    def verify(self, taken: list[Taken]) -> None:
        """Verify every output of every call. Raises Failed."""
        verifier = Verifier(self.problem)
        for one in taken:
            for inputs, result in zip(one.inputs, one.arena.results(one.snapshot), strict=True):
                finding = verifier.integrity(result) or verifier.values(inputs, result.outputs)
                if finding is not None:
                    raise Failed(finding)

    def visit(
        self, contender: Contender, taken: list[Taken] | None, samples: dict[LaneName, Samples], block: int
    ) -> None:
        """One batch and a few single reveals, their number and order secret."""
        lanes: list[LaneName] = ["batch"]
        lanes += ["call"] * self.random.randint(*_CALLS_PER_VISIT)
        self.random.shuffle(lanes)
        for name in lanes:
            low = min(_BATCH_SETS[0], self.max_sets)
            sets = 1 if name == "call" else self.random.randint(low, self.max_sets)
            self.reveal(contender, sets, taken, samples[name], block)


def _lanes() -> dict[LaneName, Samples]:
    return {"call": Samples(), "batch": Samples()}


def _bench(problem: Problem) -> _Bench:
    layout = Layout(problem)
    sets = max(1, min(_BATCH_SETS[1], _LIVE_BYTES // layout.set_bytes))
    return _Bench(problem, layout, sets, [problem.make_inputs() for _ in range(sets)])


def runnable_threads() -> int:
    """Threads that are running or want to, on the whole machine, this one included."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])


def keep_freed_memory() -> None:
    """Have malloc reuse large blocks: page faults on them are most of the judge's time otherwise."""
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, at its maximum
    libc.mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD


@contextmanager
def pinned(cpus: frozenset[int] | None) -> Iterator[None]:
    """Keep the calling thread on `cpus`."""
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True)
class Contenders:
    """All loaded; `fresh_student` starts one more of the student."""

    student: Contender
    references: dict[str, Contender]
    null: Contender
    fresh_student: Callable[[], Contender]

    @property
    def all(self) -> dict[str, Contender]:
        """Student first, the null project last."""
        return {STUDENT: self.student, **self.references, _NULL: self.null}


def time_project(
    contenders: Contenders, timed: list[Problem], *, judge_cpus: frozenset[int] | None
) -> TimingResult:
    """Time every timed workload; the caller holds the machine's lock."""
    results: list[WorkloadTiming] = []
    ratios: list[list[float]] = []
    flags: set[str] = set()
    keep_freed_memory()
    with pinned(judge_cpus):
        for problem in timed:
            measured = _Measurement(_bench(problem), contenders)
            try:
                result = measured.run()
            except Failed as failure:
                return TimingResult(
                    workloads=tuple(results),
                    speedup=Ratio(value=1.0, low=None, high=None, n=0),
                    finding=failure.finding,
                )
            results.append(result)
            ratios.append(measured.log_ratios(result))
            flags |= measured.flags | set(result.student.flags)
    return TimingResult(workloads=tuple(results), speedup=_ratio(_paired(ratios)), flags=tuple(sorted(flags)))


def _paired(ratios: list[list[float]]) -> list[float]:
    """One mean log ratio per block over the workloads; blocks that not all have are left out."""
    length = min(len(r) for r in ratios)
    return [sum(r[i] for r in ratios) / len(ratios) for i in range(length)]


def _ratio(logs: list[float]) -> Ratio:
    estimate = stats.log_ratio_interval(logs)
    interval = estimate.interval
    return Ratio(
        value=estimate.ratio,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        n=estimate.n,
    )


class _Measurement:
    """The blocks of one problem."""

    def __init__(self, bench: _Bench, contenders: Contenders) -> None:
        self._bench = bench
        self._contenders = contenders
        self._samples = {name: _lanes() for name in contenders.all}
        self._noisy: set[int] = set()
        self.flags: set[str] = set()
        self._taken: list[Taken] = []

    def run(self) -> WorkloadTiming:
        """Measure until there are enough undisturbed blocks, or the blocks are used up."""
        for name, contender in self._contenders.all.items():
            self._bench.plan(contender)
            self._bench.warm_up(contender, 0.0 if name == _NULL else _WARM_UP_S)
            contender.freeze(True)
        for block in range(_MAX_BLOCKS):
            self._block(block)
            if block + 1 - len(self._noisy) >= _CLEAN_BLOCKS:
                break
        self._bench.verify(self._taken)
        self._taken.clear()
        self._drop_noisy_blocks()
        for contender in self._contenders.all.values():
            contender.freeze(False)
        return self._result()

    def _block(self, block: int) -> None:
        """ABBA: every contender twice, in mirrored order."""
        names = list(self._contenders.all)
        for name in [*names, *reversed(names)]:
            contender = self._contenders.all[name]
            contender.freeze(False)
            taken = self._taken if name == STUDENT else None
            self._bench.visit(contender, taken, self._samples[name], block)
            contender.freeze(True)
            if runnable_threads() > (os.cpu_count() or 1):
                self._noisy.add(block)

    def _drop_noisy_blocks(self) -> None:
        blocks = set(self._samples[STUDENT]["call"].block)
        clean = blocks - self._noisy
        if len(clean) < _CLEAN_BLOCKS:
            if self._noisy:
                self.flags.add("noisy host")
            return
        self._samples = {
            name: {lane: samples.keep(clean) for lane, samples in lanes.items()}
            for name, lanes in self._samples.items()
        }

    @property
    def _constants(self) -> dict[LaneName, Constant]:
        return {lane: constant_of(samples) for lane, samples in self._samples[_NULL].items()}

    def _timing(self, name: str) -> ContenderTiming:
        return contender_timing(name, self._samples[name], self._constants, trusted=name != STUDENT)

    def _fastest(self) -> ContenderTiming:
        return min((self._timing(n) for n in self._contenders.references), key=lambda t: t.score_us)

    def _block_scores(self, timing: ContenderTiming, lane: LaneName) -> dict[int, float]:
        samples = self._samples[timing.name][lane]
        constant = self._constants[lane]
        matched = next(one.matched for one in timing.lanes if one.name == lane)
        if matched:
            return block_means(samples, constant, inside=True)
        outside = block_means(samples, constant, inside=False)
        if not samples.claimed:
            return outside
        inside = block_means(samples, constant, inside=True)
        return {block: max(outside[block], inside[block]) for block in outside}

    def _logs(self, student: ContenderTiming, reference: ContenderTiming) -> list[float]:
        # Both sides in the student's lane, so that like is compared with like.
        ours = self._block_scores(student, student.lane)
        theirs = self._block_scores(reference, student.lane)
        return [math.log(theirs[b] / ours[b]) for b in sorted(ours)]

    def _result(self) -> WorkloadTiming:
        problem = self._bench.problem
        student = self._timing(STUDENT)
        if claims_too_little(student) and self._repeats_false_claim():
            raise Failed(_false_claim(problem, student))
        references = [self._timing(name) for name in self._contenders.references]
        logs = self._logs(student, self._fastest())
        return WorkloadTiming(
            workload=problem.workload.name,
            dtype=problem.dtype,
            student=student,
            references=tuple(references),
            speedup=_ratio(logs),
            bytes_moved=problem.bytes_moved,
            flops=problem.flops,
        )

    def log_ratios(self, result: WorkloadTiming) -> list[float]:
        """One log ratio per block, against the fastest reference."""
        return self._logs(result.student, self._fastest())

    def _repeats_false_claim(self) -> bool:
        """Whether fresh processes of the student make the same false claim, every one."""
        for _ in range(_CONFIRMATIONS):
            fresh = self._contenders.fresh_student()
            try:
                fresh.load()
                self._bench.plan(fresh)
                self._bench.warm_up(fresh)
                samples = _lanes()
                for block in range(_CLEAN_BLOCKS):
                    self._bench.visit(fresh, self._taken, samples, block)
                self._bench.verify(self._taken)
                self._taken.clear()
                timing = contender_timing(STUDENT, samples, self._constants, trusted=False)
                if not claims_too_little(timing):
                    return False
            finally:
                fresh.close()
        return True


def _false_claim(problem: Problem, timing: ContenderTiming) -> Finding:
    worst = max(timing.lanes, key=lambda one: one.outside_us / max(one.inside.mean_us, 1e-3))
    return Finding(
        cause=Cause.CLOCK,
        message=f"{problem.label}: the process claims {worst.inside.mean_us:.1f} us a call, the outside "
        f"clock says {worst.outside_us:.1f} +- {worst.uncertainty_us:.1f} us, in 3 of 3 fresh processes",
    )
