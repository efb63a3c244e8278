"""One problem, measured: blocks of turns, when to stop, and the ratio.

A block has a turn of every candidate. The clock decides, over all blocks, which lane and which clock give the
student's time; the fastest reference is taken by the same. Then every block gives one number, ln(reference /
student), and the mean and its interval are of these. Every output of a student's timed call is verified.
"""

from __future__ import annotations

import ctypes
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from harness import stats
from harness.device.machine import pinned
from harness.device.telemetry import Conditions, SamplePair, Watched, block_telemetry
from harness.judge import clock as clocks
from harness.judge import interference
from harness.judge.candidates import EAGER, NULL, STUDENT, Candidates, Schedule
from harness.judge.clock import Lanes, Samples, lanes
from harness.judge.interference import ReferenceTurn, State
from harness.judge.physical_limits import Board, impossible, judge_physics, work_of
from harness.judge.problem import Problem
from harness.judge.protocol import CONFIRMATIONS, Numbers, RatioUnit
from harness.judge.reveals import Sampler, Visit
from harness.judge.scoring import UNRESOLVED, Scores
from harness.judge.shared_memory import Transport
from harness.judge.worker_client import Failed, WorkerClient
from harness.judge.worker_reply import SecondaryMode
from harness.outcome import Cause
from harness.records import ContenderTiming, Finding, Ratio, TimingResult, WorkloadTiming
from harness.records.timing import NOISY, BlockTelemetry, Interference, PhysicalLimit, Secondary

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
UNFINISHED = "interval not reached"
_GONE_TURNS = 4
"""Of each reference with the student's process gone, and as many beside an idle reference as control."""
_LIFE_BLOCKS = 4
_SHORT_WARM_UP_S = 0.05
_MOST_STRETCH, _EXTRA_BLOCKS = 2.0, 4
"""Where blocks are disturbed, the stage takes at most this many times as long, or so many blocks more."""


@dataclass(frozen=True)
class Session:
    numbers: Numbers
    transport: Transport
    conditions: Conditions
    judge_cpus: frozenset[int] | None = None
    gap_cpus: frozenset[int] = frozenset()
    """Cores that the judge draws and verifies on while every candidate stands still."""
    board: Board | None = None
    """Physical limits of the device; None where they are not known."""


def ratio(logs: Sequence[float], unit: RatioUnit = "blocks", *, resolved: bool = True) -> Ratio:
    """Without an interval where the clock cannot resolve the ratio."""
    estimate = stats.log_ratio_interval(logs)
    low, high = (i.low, i.high) if (i := estimate.interval) is not None and resolved else (None, None)
    return Ratio(value=estimate.value, low=low, high=high, n=estimate.n, unit=unit)


class Measurement:
    def __init__(
        self, problem: Problem, candidates: Candidates, session: Session, workloads: int = 1
    ) -> None:
        """`workloads`: how many share the time of the stage."""
        self._blocks_s = session.numbers.stage_s / workloads
        self._numbers, self._conditions, self._board = session.numbers, session.conditions, session.board
        self._problem = problem
        self._sampler = Sampler(problem, session.numbers, session.transport, session.gap_cpus)
        self._candidates = candidates
        self._student_stays = STUDENT in candidates.resident
        self._schedule = Schedule(self._sampler, candidates)
        self._random = random.SystemRandom()
        self._order: list[str] = []
        """Of the candidates, in the last block."""
        self.samples: dict[str, Lanes] = {}
        """By candidate. Public, so that a calibration can score them."""
        self._spent_s: dict[str, float] = {}
        self._took_s = 0.0
        self._disturbed: dict[int, list[str]] = {}
        self._telemetry: dict[int, list[SamplePair]] = {}
        self._visit: Visit = []
        """The student's last visit, which references are shown too."""
        self._turns: list[ReferenceTurn] = []
        self._gone: dict[str, Lanes] = {}
        self.flags: set[str] = set()
        self.notes = self._schedule.notes
        self.logs: list[float] = []
        """Log ratios by block, of a finished measurement."""
        self._secondary: dict[str, tuple[Secondary, ...]] = {}

    @property
    def calls_s(self) -> float:
        """Time in timed calls of students and references."""
        return self._sampler.calls_us / 1e6

    @property
    def timed_share(self) -> float:
        """Of the time that measure() took, what timed calls took."""
        return self.calls_s / max(self._took_s, 1e-9)

    def measure(self) -> None:
        """Measure until the protocol is satisfied. Raises Failed; even then the residents are thawed and
        usable."""
        entered = time.monotonic()
        try:
            self._schedule.size_batches()
            self._schedule.prepare()
            self.samples = {name: lanes() for name in self._candidates.start}
            self._order = list(self.samples)
            self._gone = {name: lanes() for name in self.samples if name != STUDENT}
            self._spent_s = dict.fromkeys(self.samples, 0.0)
            began = time.monotonic()
            for block in range(self._numbers.most_blocks):
                self._block(block)
                if self._finished(block + 1, time.monotonic() - began):
                    break
            else:
                if self._numbers.half_width is not None:
                    self.flags.add(UNFINISHED)
            self._drop_disturbed_blocks()
            if self._numbers.secondary and not self._sampler.transport.stops_with_process:
                self._secondary = {name: self._secondary_of(name) for name in self.samples if name != NULL}
        finally:
            self._took_s = time.monotonic() - entered
            self._visit = []  # of a device's memory, the next workload needs nearly all
            self._schedule.release()
            self._sampler.close()

    def _secondary_of(self, name: str) -> tuple[Secondary, ...]:
        """The worker's claims about other modes: on a device only, and never ranked."""
        # `warm` calls twice on the same operands, which an op that updates them in place does not survive.
        in_place = any(o.role in ("inout", "partial") for o in self._problem.task.operands)
        modes: list[SecondaryMode] = ["queued", "graph"] if in_place else ["queued", "graph", "warm"]
        with self._schedule.turn(name) as client:
            found = [self._sampler.secondary(client, mode, keep=name == STUDENT) for mode in modes]
        self._sampler.verify()
        return tuple(one for one in found if one is not None)

    def _block(self, block: int) -> None:
        """A turn of every candidate, in every second block in the reverse order of the one before."""
        self._order.reverse()
        if block % 2 == 0:
            self._random.shuffle(self._order)
        self._visit = self._fresh_visit()
        for name in self._order:
            watched = self._turn(name, block, self.samples, "frozen")
            if watched.reason is not None:
                self._disturbed.setdefault(block, []).append(watched.reason)
            if watched.samples is not None:
                self._telemetry.setdefault(block, []).append(watched.samples)

    @contextmanager
    def _watched_turn(self, name: str) -> Iterator[tuple[WorkerClient, Watched]]:
        if self._conditions.around_turns:
            with self._conditions.watched() as watched, self._schedule.turn(name) as client:
                yield client, watched
        else:
            with self._schedule.turn(name) as client, self._conditions.watched() as watched:
                yield client, watched

    def _turn(self, name: str, block: int, samples: dict[str, Lanes], state: State, life: int = 0) -> Watched:
        batches, student = samples[name]["batch"].reveals, name == STUDENT
        before = len(batches)
        with self._watched_turn(name) as (client, watched):
            turn_s = self._numbers.most_s / self._numbers.most_blocks  # 0: one visit
            began, visit = time.monotonic(), self._visit
            while True:
                shown = self._shown(name, visit)
                seen_us = self._sampler.reveal(client, shown, samples[name], block, keep=student)
                self._schedule.observe(name, seen_us)
                if time.monotonic() - began >= turn_s:
                    break
                if student:
                    visit = self._visit = self._fresh_visit()
            self._spent_s[name] += time.monotonic() - began
        if student:
            self._sampler.verify()
        elif name != NULL:
            us = Samples(batches[before:]).mean_outside_us
            self._turns.append(ReferenceTurn(name, state, life, us, *interference.rates(watched.samples)))
        return watched

    def _fresh_visit(self) -> Visit:
        self._visit.clear()  # its memory first
        return self._sampler.visit(self._schedule.pace_us.get(STUDENT, 0.0))

    def _shown(self, name: str, visit: Visit) -> Visit:
        """A student's inputs are fresh; our own workers may see the same ones again."""
        if name == STUDENT:
            return visit
        pace_us = self._schedule.pace_us
        if name == NULL:
            return self._sampler.for_null(
                visit, [us for n, us in pace_us.items() if n not in (STUDENT, NULL)]
            )
        return self._sampler.again(visit, pace_us.get(name, 0.0))

    def _finished(self, blocks: int, took_s: float) -> bool:
        clean, wanted = blocks - len(self._disturbed), self._numbers.clean_blocks
        if self._blocks_s and blocks >= wanted + _EXTRA_BLOCKS and took_s >= _MOST_STRETCH * self._blocks_s:
            return True
        return took_s >= self._blocks_s and clean >= wanted and all(map(self._enough, self.samples))

    def _enough(self, name: str) -> bool:
        numbers, both = self._numbers, self.samples[name]
        if numbers.half_width is None or name == NULL:
            return True
        reveals = [one for samples in both.values() for one in samples.reveals]
        singles = [one.outside_us for one in both["call"].reveals]
        half = stats.median_half_width(singles)
        enough = (
            sum(one.calls for one in reveals) >= numbers.least_samples
            and sum(one.outside_us for one in reveals) >= numbers.least_measured_s * 1e6
            and half is not None
            and half <= numbers.half_width * statistics.median(singles)
        )
        if not enough and self._spent_s[name] >= numbers.most_s:
            self.flags.add(UNFINISHED)
            return True
        return enough

    def _drop_disturbed_blocks(self) -> None:
        clean = set(self.samples[STUDENT]["call"].blocks) - set(self._disturbed)
        if len(clean) < self._numbers.clean_blocks:
            if self._disturbed:
                self.flags.add(NOISY)
            return
        self.samples = {
            name: {lane: samples.keep(clean) for lane, samples in both.items()}
            for name, both in self.samples.items()
        }

    def finish(self) -> WorkloadTiming:
        """Look for interference where a student's process was frozen beside the references, and judge. The
        caller has killed that process. Raises Failed."""
        if self._student_stays:
            try:
                self._schedule.prepare(_SHORT_WARM_UP_S)
                self._student_gone(0)
                found = interference.judge_interference(self._turns)
                if found is not None and found.seen:
                    for life in range(1, interference.LIVES):
                        self._further_life(life)
            finally:
                self._candidates.dismiss()
                self._schedule.release()
        try:
            return self._result()
        finally:
            self._sampler.close()

    def _student_gone(self, life: int, stand_in: WorkerClient | None = None) -> None:
        names = [name for name in self.samples if name != STUDENT]
        samples = self._gone if stand_in is None else {name: lanes() for name in names}
        state: State = "gone" if stand_in is None else "control"
        for _ in range(_GONE_TURNS):
            self._visit = self._fresh_visit()  # the same pauses
            self._random.shuffle(names)
            for name in names:
                if stand_in is not None:
                    shown = self._sampler.again(self._visit, 0.0)
                    self._sampler.reveal(stand_in, shown, lanes(), 0, keep=False)
                    stand_in.freeze(True)
                self._turn(name, life, samples, state, life)

    def _further_life(self, life: int) -> None:
        """Another process of the student's: frozen, then an idle reference in its place, then gone. Raises
        Failed."""
        self._schedule.bring_student()
        names = list(self.samples)
        unscored = {name: lanes() for name in names}
        for _ in range(_LIFE_BLOCKS):
            self._random.shuffle(names)
            self._visit = self._fresh_visit()
            for name in names:
                self._turn(name, 0, unscored, "frozen", life)
        self._candidates.dismiss()
        with self._schedule.fresh(EAGER) as stand_in:
            self._student_gone(life, stand_in)
        self._student_gone(life)

    def _score_undisturbed(self) -> None:
        for name, gone in self._gone.items():
            blocks = self.samples[name]["batch"].blocks
            for lane, samples in gone.items():
                again = [replace(one, block=block) for block in blocks for one in samples.reveals]
                self.samples[name][lane] = Samples(again)

    @property
    def scores(self) -> Scores:
        """Of what has been measured so far."""
        return Scores(self.samples, self._gone)

    @property
    def telemetry(self) -> tuple[BlockTelemetry, ...]:
        reasons = {block: list(dict.fromkeys(found)) for block, found in self._disturbed.items()}
        return tuple(block_telemetry(b, turns, reasons.get(b, [])) for b, turns in self._telemetry.items())

    def _result(self) -> WorkloadTiming:
        problem = self._problem
        if self._late_outputs():
            raise Failed(_late(problem))
        found = self._interference()
        scores = self.scores
        compared = scores.compare()
        if self._claims_are_false(compared.student):
            raise Failed(_false_claim(problem, compared.student))
        student, fastest = compared.student, compared.fastest
        limit = self._physics(student.score_us, fastest.score_us)
        self.logs = list(compared.logs)
        self.flags |= {*compared.flags, *(() if limit is None else limit.flags)}
        reasons = sorted({reason for reasons in self._disturbed.values() for reason in reasons})
        if reasons:
            self.notes.append(f"{problem.label}: blocks disturbed: {', '.join(reasons)}")
        return WorkloadTiming(
            workload=problem.workload.name,
            dtype=problem.dtype,
            student=self._with_secondary(student),
            references=tuple(map(self._with_secondary, compared.references)),
            speedup=ratio(self.logs, self._numbers.unit, resolved=UNRESOLVED not in self.flags),
            clock=compared.clock,
            bytes_moved=problem.bytes_moved,
            flops=problem.flops,
            speed_of_light=None if limit is None else limit.fraction,
            physics=limit,
            telemetry=self.telemetry,
            interference=found,
        )

    def _with_secondary(self, timing: ContenderTiming) -> ContenderTiming:
        return timing.model_copy(update={"secondary": self._secondary.get(timing.name, ())})

    def _late_outputs(self) -> bool:
        """Whether outputs changed after t1, in a fresh process too. Where only one process showed it, the
        figure is that of a noisy host."""
        if not self._sampler.late:
            return False
        for _ in self._confirmations():
            if self._sampler.late:
                return True
        self.flags.add(NOISY)
        self.notes.append(f"{self._problem.label}: outputs changed after t1, not so in fresh processes")
        return False

    def _interference(self) -> Interference | None:
        """What the student's frozen process did to references, which are then scored without it. Raises
        Failed where that is a cheat."""
        found = interference.judge_interference(self._turns)
        if found is None:
            return None
        message = f"{self._problem.label}: {interference.words(found)}"
        if not found.seen:
            if found.lives > 1:  # measured again beside further processes, and not found
                self.flags.add(NOISY)
                self.notes.append(f"{message}; not so beside others of its processes")
            return found
        if interference.is_cheat(found):
            raise Failed(Finding(cause=Cause.INTERFERENCE, message=f"{message}, in 3 of 3 processes"))
        self.flags.add(interference.FLAG)
        self.notes.append(message)
        self._score_undisturbed()
        return found

    def _claims_are_false(self, student: ContenderTiming) -> bool:
        """Whether claims lie below the outside figure in 3 of 3 undisturbed processes. On a device that
        stays a flag: its clock has not been calibrated on hardware. Where a fresh process does not repeat
        it, the figure is that of a noisy host, which is never ranked."""
        device = not self._sampler.transport.stops_with_process
        if device or NOISY in self.flags or not clocks.claims_too_little(student):
            return False
        if all(map(clocks.claims_too_little, self._confirmations())):
            return NOISY not in self.flags  # a confirmation may have been disturbed
        self.flags.add(NOISY)
        self.notes.append(f"{self._problem.label}: claims below the outside clock, not so in a fresh process")
        return False

    def _physics(self, score_us: float, reference_us: float) -> PhysicalLimit | None:
        """How the score compares with what the board can do. Raises Failed where it is impossible."""
        work = work_of(self._problem)
        limit = judge_physics(score_us, reference_us, work, self._board)
        if limit is None or not limit.impossible:
            return limit
        again = [judge_physics(t.score_us, reference_us, work, self._board) for t in self._confirmations()]
        finding = impossible(self._problem.label, [limit, *(one for one in again if one is not None)])
        if finding is not None:
            raise Failed(finding)
        return limit

    def _confirmations(self) -> Iterator[ContenderTiming]:
        constants = self.scores.constants
        for _ in range(CONFIRMATIONS):
            samples, self._sampler.late = lanes(), 0
            with self._schedule.fresh(STUDENT) as client:
                # The machine is sampled while the student is frozen: its own threads disturb nothing.
                client.freeze(True)
                with self._conditions.watched() as watched:
                    for block in range(self._numbers.clean_blocks):
                        visit = self._sampler.visit(self._schedule.pace_us[STUDENT])
                        self._sampler.reveal(client, visit, samples, block, keep=True)
                    client.freeze(True)
            if watched.reason is not None:
                self.flags.add(NOISY)
                note = f"a process that was to confirm a figure was disturbed: {watched.reason}"
                self.notes.append(note)
            self._sampler.verify()
            yield clocks.contender_timing(STUDENT, samples, constants, trusted=False)


def _late(problem: Problem) -> Finding:
    message = "outputs changed after the process had answered and a sample of them had been read"
    return Finding(cause=Cause.LATE_OUTPUT, message=f"{problem.label}: {message}, in 2 processes")


def _false_claim(problem: Problem, timing: ContenderTiming) -> Finding:
    false = filter(clocks.claim_too_little, timing.lanes)
    worst = max(false, key=lambda one: one.outside_us / max(one.inside.mean_us, 1e-3))
    outside = f"the outside clock says {worst.outside_us:.1f} +- {worst.uncertainty_us:.1f} us"
    claim = f"the process claims {worst.inside.mean_us:.1f} us a call"
    message = f"{problem.label}: {claim}, {outside}, in 3 of 3 fresh processes"
    return Finding(cause=Cause.CLOCK, message=message)


@contextmanager
def settled_judge(cpus: frozenset[int] | None) -> Iterator[None]:
    """Pin this process to `cpus`, have malloc reuse large blocks (for good), and torch use one thread (for
    good): others would spin on a candidate's core."""
    torch.set_num_threads(1)
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # its maximum
    libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
    with pinned(cpus):
        yield


def time_project(candidates: Candidates, timed: list[Problem], session: Session) -> TimingResult:
    """Time every timed workload, until the first failure, under the machine's lock; kills the student's
    process."""
    finding: Finding | None = None
    measurements: list[Measurement] = []
    timings: list[WorkloadTiming] = []
    began = time.monotonic()
    with settled_judge(session.judge_cpus):
        try:
            for problem in timed:
                measurements.append(Measurement(problem, candidates, session, len(timed)))
                measurements[-1].measure()
            candidates.dismiss()
            timings = [measurement.finish() for measurement in measurements]
        except Failed as failure:
            finding = failure.finding
            measurements.clear()  # nothing is reported of a student that failed
        finally:
            candidates.dismiss()
    speedup = Ratio(value=1.0, low=None, high=None, n=0)
    if finding is None:
        flags = {flag for one in measurements for flag in one.flags}
        logs = _paired([one.logs for one in measurements])
        speedup = ratio(logs, session.numbers.unit, resolved=UNRESOLVED not in flags)
    return TimingResult(
        workloads=tuple(timings),
        speedup=speedup,
        flags=tuple(sorted({flag for one in measurements for flag in one.flags})),
        notes=tuple(dict.fromkeys(note for one in measurements for note in one.notes)),
        transport=session.transport.name,
        transport_facts=session.transport.facts(),
        timed_share=sum(one.calls_s for one in measurements) / (time.monotonic() - began),
        finding=finding,
    )


def _paired(ratios: list[list[float]]) -> list[float]:
    """The mean over the workloads of their n-th blocks, for as many blocks as all of them have."""
    return [sum(block) / len(ratios) for block in zip(*ratios, strict=False)]
