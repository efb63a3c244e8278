"""One problem on the bench: warm-up, reveals of fresh secret inputs, and verification of what came back.

Owns: what is revealed, how often, and that every output of a student's is verified. Does not own: whose turn
it is (lineup.py, timing.py), the clock's rule (clock.py).
Invariant: inputs of a timed call are drawn for it alone and shown once; nothing is drawn or verified
between two reveals of a turn, so that every contender, the null project too, wakes up after the same
pause and to the same caches (docs/decisions/0005-lanes.md).
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field

import torch

from harness.judge.arena import Arena, Layout
from harness.judge.check import Verifier
from harness.judge.claims import CallTimes, Mode, SecondaryMode
from harness.judge.clock import LaneName, Samples
from harness.judge.contender import Contender, Failed
from harness.judge.problem import Problem, Tensors
from harness.judge.protocol import Numbers
from harness.judge.transport import Transport
from harness.records import Secondary

Lanes = dict[LaneName, Samples]
Visit = list[list[Tensors]]
"""Inputs of each call of each reveal."""
CONSTANT_SHARE = 0.05
"""Of a batch of the reference's calls, which a reveal's constant should not exceed [own]; the design asks for
0.01, which takes five times the inputs."""
_SCOUTS = 3
_BATCH_S = 0.05
"""A batch need not take longer [own]: beside that, no constant matters."""
_MOST_ROUNDS = 256
_WARM_REVEAL_S = 0.1


def lanes() -> Lanes:
    """No samples yet."""
    return {"call": Samples(), "batch": Samples()}


@dataclass(frozen=True)
class Taken:
    """One reveal of the student's, waiting to be verified."""

    arena: Arena
    """Closed: only its layout and its own copy of the inputs are used."""
    inputs: list[Tensors]
    snapshot: torch.Tensor


@dataclass
class Bench:
    """One problem with everything that is needed to time contenders on it."""

    problem: Problem
    numbers: Numbers
    transport: Transport
    random: random.SystemRandom = field(default_factory=random.SystemRandom)

    def __post_init__(self) -> None:
        """Draws the inputs of the warm-up. Raises HarnessBug where the task is at fault."""
        self.layout = Layout(self.problem)
        room = self.transport.live_bytes // self.layout.set_bytes
        fewest, most = self.numbers.batch_sets
        self.max_sets = max(1, min(max(fewest, self._wanted_sets()), most, room))
        self._warm = self.draw(self.max_sets)
        self._taken: list[Taken] = []

    def _wanted_sets(self) -> int:
        """So many that a reveal's constant is a small share of a batch, going by the reference's time here.

        What a worker costs beside its calls is what a hostile one can save: see docs/security.md.
        """
        inputs = self.problem.make_inputs()
        took_us = min(self._reference_us(inputs) for _ in range(_SCOUTS))
        return math.ceil(self.numbers.constant_us / (CONSTANT_SHARE * took_us))

    def _reference_us(self, inputs: Tensors) -> float:
        start = time.perf_counter()
        self.problem.reference(inputs)
        self.transport.wait()
        return (time.perf_counter() - start) * 1e6

    def draw(self, sets: int) -> list[Tensors]:
        """Inputs of `sets` calls, each from a fresh key."""
        return [self.problem.make_inputs() for _ in range(sets)]

    def plan(self, contender: Contender) -> None:
        """Announce the problem. Raises Failed."""
        contender.plan(self.layout, self.max_sets, dict(self.problem.workload.scalars))

    def _shown(
        self, contender: Contender, inputs: list[Tensors], doing: str, rounds: int = 1, mode: Mode = "eager"
    ) -> tuple[Taken, CallTimes]:
        """One reveal in memory of its own. Raises Failed."""
        arena = Arena(self.layout, inputs, 0xFF, self.transport)
        try:
            snapshot, times = contender.call(arena, len(inputs), doing, rounds, mode)
        finally:
            arena.close()
        return Taken(arena, inputs, snapshot), times

    def warm_up(self, contender: Contender, seconds: float) -> float:
        """Calls over the whole pool of addresses, for at least `seconds`; what a call took, from outside and
        in microseconds, at last. Raises Failed."""
        start, rounds, calls, pace_us = time.perf_counter(), 1, 0, 0.0
        while calls < self.numbers.warm_up_calls or time.perf_counter() - start < seconds:
            _, times = self._shown(
                contender, self._warm, f"while warming up on {self.problem.label}", rounds=rounds
            )
            calls += rounds * len(self._warm)
            pace_us = times.outside_s / (rounds * len(self._warm)) * 1e6
            # Grow towards a reveal of a tenth of a second, so that few are needed.
            rounds = min(_MOST_ROUNDS, max(rounds, int(rounds * _WARM_REVEAL_S / max(times.outside_s, 1e-4))))
        return pace_us

    def visit(self, pace_us: float = 0.0) -> Visit:
        """Inputs of one visit: a batch and a few single reveals, their number, sizes and order secret.

        `pace_us`: about what a call of the contender takes; the batch of a slow one is small.
        """
        most = min(self.max_sets, max(2, int(_BATCH_S * 1e6 / max(pace_us, 1.0))))
        sizes = [1] * self.random.randint(*self.numbers.calls_per_visit)
        sizes.append(self.random.randint(max(2, most // 2), most) if most > 1 else 1)
        self.random.shuffle(sizes)
        return [self.draw(size) for size in sizes]

    def reveal(self, contender: Contender, visit: Visit, samples: Lanes, block: int, *, keep: bool) -> float:
        """Make the reveals of a visit; `keep` what came back, to be verified. Raises Failed.

        Returns the least that a call of a reveal took, from outside and in microseconds.
        """
        pace_us = math.inf
        for inputs in visit:
            taken, times = self._shown(contender, inputs, f"while timed on {self.problem.label}")
            # With room for one set only, every reveal serves both lanes.
            if len(inputs) == 1:
                samples["call"].add(block, 1, times)
            if len(inputs) > 1 or self.max_sets == 1:
                samples["batch"].add(block, len(inputs), times)
            if keep:
                self._taken.append(taken)
            pace_us = min(pace_us, times.outside_s * 1e6 / len(inputs))
        return pace_us

    def secondary(self, contender: Contender, mode: SecondaryMode, *, keep: bool) -> Secondary | None:
        """One batch of fresh inputs in another way of calling, after one that prepares it. None where the
        worker says that it cannot, or does not say what it took. Raises Failed."""
        doing = f"in mode {mode} on {self.problem.label}"
        times = None
        for inputs in (self._warm, self.draw(self.max_sets)):
            taken, times = self._shown(contender, inputs, doing, mode=mode)
            if times.mode != mode:
                return None
            if keep:
                self._taken.append(taken)
        if times is None or times.claim_ns is None:
            return None
        return Secondary(mode=mode, claimed_us=times.claim_ns / 1e3 / self.max_sets, calls=self.max_sets)

    def verify(self) -> None:
        """Verify every output of every call kept so far. Raises Failed."""
        verifier = Verifier(self.problem)
        taken, self._taken = self._taken, []
        for one in taken:
            for inputs, result in zip(one.inputs, one.arena.results(one.snapshot), strict=True):
                finding = verifier.integrity(result) or verifier.values(inputs, result.outputs)
                if finding is not None:
                    raise Failed(finding)
