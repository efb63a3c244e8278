"""One problem on the bench: warm-up, reveals of fresh secret inputs, and verification of what came back.

Inputs of a timed call are drawn for it alone, and a student sees them before anybody else. Nothing is drawn
or verified between two reveals of a turn, so that every contender, the null project too, wakes up after the
same pause and to the same caches (docs/decisions/0005-lanes.md).
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field

import torch

from harness.judge import values
from harness.judge.arena import Arena, Layout
from harness.judge.cases import Case
from harness.judge.check import Verifier
from harness.judge.clock import LaneName, Samples
from harness.judge.memory import HostMemory
from harness.judge.problem import Problem, Tensors
from harness.judge.protocol import Numbers
from harness.judge.transport import Transport
from harness.judge.worker_client import Failed, WorkerClient
from harness.judge.worker_reply import CallTimes, Mode, SecondaryMode
from harness.records import Secondary

Lanes = dict[LaneName, Samples]
AVOIDABLE_SHARE = 0.02
"""Of a batch of the reference's calls, which a reveal's constant should not exceed: a hostile worker can
avoid some of it (DESIGN.md, the outside clock)."""
_SCOUTS = 3
_BATCH_S = 0.05
"""A batch need not take longer [own]: beside that, no constant matters."""
_MOST_ROUNDS = 256
_WARM_REVEAL_S = 0.1
_HARD_SHARE = 0.25
"""Of the sets of a probe that is a batch: the others have the task's own values."""


def lanes() -> Lanes:
    """No samples yet."""
    return {"call": Samples(), "batch": Samples()}


@dataclass(frozen=True)
class Shown:
    """What one reveal shows."""

    inputs: list[Tensors]
    kinds: list[str]
    """The kind of values of each set."""
    scored: bool = True
    """False for a probe: adversarial values at the timed size, verified and not timed."""


Visit = list[Shown]
"""The reveals of one visit."""


@dataclass(frozen=True)
class Taken:
    """One reveal of the student's, waiting to be verified."""

    arena: Arena
    """Closed: only its layout and its own copy of the inputs are used."""
    shown: Shown
    snapshot: torch.Tensor


@dataclass
class Sampler:
    """One problem with everything that is needed to time contenders on it. Close it when done."""

    problem: Problem
    numbers: Numbers
    transport: Transport
    random: random.SystemRandom = field(default_factory=random.SystemRandom)

    def __post_init__(self) -> None:
        """Draws the inputs of the warm-up. Raises HarnessBug where the task is at fault."""
        self.layout = Layout(self.problem)
        room = self.transport.live_bytes // self.layout.set_bytes
        fewest, most = self.numbers.batch_sets
        self.max_sets = 1
        if not self.problem.large:  # else one set is all that fits beside the truth
            self.max_sets = max(1, min(max(fewest, self._wanted_sets()), most, room))
        self._warm = self._draw(self.max_sets)
        self._taken: list[Taken] = []
        self._memory: list[HostMemory] = []
        self._shared: HostMemory | None = None
        kinds = self.problem.task.values if values.changes(self.problem) else ()
        self._hard = list(dict.fromkeys(kinds))

    def _wanted_sets(self) -> int:
        """So many that a reveal's constant is a small share of a batch, going by the reference's time
        here."""
        inputs = self.problem.make_inputs()
        took_us = min(self._reference_us(inputs) for _ in range(_SCOUTS))
        return math.ceil(self.numbers.constant_us / (AVOIDABLE_SHARE * took_us))

    def _reference_us(self, inputs: Tensors) -> float:
        start = time.perf_counter()
        self.problem.reference(inputs)
        self.transport.wait()
        return (time.perf_counter() - start) * 1e6

    def _draw(self, sets: int) -> Shown:
        """Inputs of `sets` calls, each from a fresh key."""
        return Shown([self.problem.make_inputs() for _ in range(sets)], [values.OWN] * sets)

    # --- memory ----------------------------------------------------------------------------------

    def plan(self, contender: WorkerClient, *, trusted: bool) -> None:
        """Announce the problem. Raises Failed.

        On the host, memory for all sets stays mapped in the worker, which is frozen while inputs are written:
        mapping them for each reveal took up to a fifth of a batch (docs/decisions/0025-resident-memory.md).
        Workers of ours share theirs; every process of a student's has its own.
        """
        memory = None
        if self.transport.stops_with_process:
            memory = self._shared if trusted else None
            if memory is None:
                memory = HostMemory(self.layout.set_bytes * self.max_sets)
                memory.populate()
                self._memory.append(memory)
            if trusted:
                self._shared = memory
        contender.plan(self.layout, self.max_sets, dict(self.problem.workload.scalars), memory)

    def release(self, contender: WorkerClient) -> None:
        """The memory of a student's process that has ended."""
        for memory in self._memory:
            if memory is contender.memory and memory is not self._shared:
                self._memory.remove(memory)
                memory.close()
                return

    def close(self) -> None:
        """Release what takes much memory. Planning again brings it back, but for inputs of the warm-up beside
        the first."""
        while self._memory:
            self._memory.pop().close()
        self._shared = None
        self._warm = Shown(self._warm.inputs[:1], self._warm.kinds[:1])

    def _reveal(
        self, contender: WorkerClient, shown: Shown, doing: str, rounds: int = 1, mode: Mode = "eager"
    ) -> tuple[Taken, CallTimes]:
        """One reveal. Raises Failed."""
        if contender.memory is not None:
            contender.freeze(True)
        arena = Arena(self.layout, shown.inputs, 0xFF, self.transport, contender.memory)
        try:
            snapshot, times = contender.call(arena, len(shown.inputs), doing, rounds, mode)
        finally:
            arena.close()
        return Taken(arena, shown, snapshot), times

    # --- reveals ---------------------------------------------------------------------------------

    def warm_up(self, contender: WorkerClient, seconds: float) -> float:
        """Calls over the whole pool of addresses, for at least `seconds`; what a call took, from outside and
        in microseconds, at last. Raises Failed."""
        start, rounds, calls, pace_us = time.perf_counter(), 1, 0, 0.0
        while calls < self.numbers.warm_up_calls or time.perf_counter() - start < seconds:
            doing = f"while warming up on {self.problem.label}"
            _, times = self._reveal(contender, self._warm, doing, rounds=rounds)
            sets = rounds * len(self._warm.inputs)
            calls += sets
            pace_us = times.outside_s / sets * 1e6
            # Grow towards a reveal of a tenth of a second, so that few are needed.
            rounds = min(_MOST_ROUNDS, max(rounds, int(rounds * _WARM_REVEAL_S / max(times.outside_s, 1e-4))))
        return pace_us

    def visit(self, pace_us: float = 0.0) -> Visit:
        """The reveals of one visit of the student's: a batch, a few singles and a probe, their number, sizes
        and order secret.

        `pace_us`: about what a call of the contender takes; the batch of a slow one is small.
        """
        sizes = [1] * self.random.randint(*self.numbers.calls_per_visit)
        sizes.append(self._batch(pace_us))
        if self.problem.large:
            sizes = [1]
        shown = [self._draw(size) for size in sizes]
        if self._hard:
            shown.append(self._probe(self._batch(pace_us) if self.random.random() < 0.5 else 1))
        self.random.shuffle(shown)
        return shown

    def _batch(self, pace_us: float) -> int:
        most = self._most(pace_us)
        return self.random.randint(max(2, most // 2), most) if most > 1 else 1

    def _most(self, pace_us: float) -> int:
        """Sets in a batch at most."""
        return min(self.max_sets, max(2, int(_BATCH_S * 1e6 / max(pace_us, 1.0))))

    def _probe(self, sets: int) -> Shown:
        """Adversarial values at the timed size: in a batch at secret places among the task's own."""
        kinds = [values.OWN] * sets
        for place in self.random.sample(range(sets), max(1, int(_HARD_SHARE * sets))):
            kinds[place] = self.random.choice(self._hard)
        return Shown([values.make(self.problem, kind) for kind in kinds], kinds, scored=False)

    def again(self, visit: Visit, pace_us: float) -> Visit:
        """The same inputs for a worker of ours, which has nothing to gain from what it may have seen; no more
        sets than fit its pace, and no probes."""
        most = self._most(pace_us)
        return [Shown(one.inputs[:most], one.kinds[:most]) for one in visit if one.scored]

    def reveal(
        self, contender: WorkerClient, visit: Visit, samples: Lanes, block: int, *, keep: bool
    ) -> float:
        """Make the reveals of a visit; `keep` what came back, to be verified. Raises Failed.

        Returns the least that a call of a scored reveal took, from outside and in microseconds.
        """
        pace_us = math.inf
        for shown in visit:
            taken, times = self._reveal(contender, shown, f"while timed on {self.problem.label}")
            sets = len(shown.inputs)
            if keep:
                self._taken.append(taken)
            if self.problem.large:
                self.verify()
            if not shown.scored:
                continue
            # With room for one set only, every reveal serves both lanes.
            if sets == 1:
                samples["call"].add(block, 1, times)
            if sets > 1 or self.max_sets == 1:
                samples["batch"].add(block, sets, times)
            pace_us = min(pace_us, times.outside_s * 1e6 / sets)
        return pace_us

    def secondary(self, contender: WorkerClient, mode: SecondaryMode, *, keep: bool) -> Secondary | None:
        """One batch of fresh inputs in another way of calling, after one that prepares it. None where the
        worker says that it cannot, or does not say what it took. Raises Failed."""
        doing = f"in mode {mode} on {self.problem.label}"
        times = None
        for shown in (self._warm, self._draw(self.max_sets)):
            taken, times = self._reveal(contender, shown, doing, mode=mode)
            if times.mode != mode:
                return None
            if keep:
                self._taken.append(taken)
        if times is None or times.claim_ns is None:
            return None
        return Secondary(mode=mode, claimed_us=times.claim_ns / 1e3 / self.max_sets, calls=self.max_sets)

    def verify(self) -> None:
        """Verify every output of every call kept so far. Raises Failed."""
        taken, self._taken = self._taken, []
        for one in taken:
            results = one.arena.results(one.snapshot)
            for kind, inputs, result in zip(one.shown.kinds, one.shown.inputs, results, strict=True):
                verifier = Verifier(self.problem, Case(self.problem, values=kind), timed=True)
                finding = verifier.integrity(result) or verifier.values(inputs, result.outputs)
                if finding is not None:
                    raise Failed(finding)
