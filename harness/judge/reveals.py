"""Reveals of one problem's inputs: warm-up, timed visits of fresh secret inputs, and verification.

Nothing is drawn or verified between two reveals of a turn, so every candidate, the null project too, wakes up
after the same pause and to the same caches.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from harness.judge import adversarial
from harness.judge.clock import Constant, Lanes, Samples, constant_of, without_work
from harness.judge.guarded_buffers import Arena, Layout, SetResult, Snapshot, in_turn
from harness.judge.output_sample import OutputSample
from harness.judge.problem import Problem, Tensors
from harness.judge.protocol import Numbers
from harness.judge.shared_memory import CudaTransport, HostMemory, Transport
from harness.judge.verifier import Case, Verifier
from harness.judge.worker_client import Failed, WorkerClient
from harness.judge.worker_reply import Mode, Reveal, SecondaryMode
from harness.records import Finding
from harness.records.timing import Secondary

_T = TypeVar("_T")
_R = TypeVar("_R")
_SCOUTS = 4
"""Reveals of each size, before batches are sized."""
_FASTER = 2.0
"""Batches have room for a student that is this much faster than the reference (our choice)."""
_WARM_SETS = 32
"""Also of the larger reveals before batches are sized: few calls would make each look expensive."""
_BATCH_S = 0.05
"""A batch need not take longer (our choice): beside that, no constant matters."""
_MAX_ROUNDS = 256
_WARM_REVEAL_S = 0.1
_HARD_SHARE = 0.25
_LARGE_PROBES = 0.25
"""Of the probes: as large as a batch, the others a single call (our choice)."""


@dataclass(frozen=True)
class InputSets:
    inputs: list[Tensors]
    kinds: list[str]
    scored: bool = True
    """False for a probe: adversarial values at the timed size, verified and not timed."""

    def first(self, sets: int) -> InputSets:
        return replace(self, inputs=self.inputs[:sets], kinds=self.kinds[:sets])


Visit = list[InputSets]


class Unverified(NamedTuple):
    arena: Arena
    """Closed: only its layout and its own copy of the inputs are used."""
    shown: InputSets
    snapshot: Snapshot


def batch_sets(constant: Constant, call_us: float, share: float, fewest: int, most: int) -> int:
    """The fewest sets of which the constant of a reveal is at most that share; `most` where it never is."""
    share_us = share * call_us - constant.per_set_us
    wanted = math.ceil(constant.us / share_us) if share_us > 0 else most
    return max(1, min(max(fewest, wanted), most))


@dataclass
class Sampler:
    problem: Problem
    numbers: Numbers
    transport: Transport
    cores: frozenset[int] = frozenset()
    """On which input sets are drawn, copied and verified while every candidate stands still; none: here."""
    random: random.SystemRandom = field(default_factory=random.SystemRandom)

    def __post_init__(self) -> None:
        """Draws the inputs of the warm-up. Raises HarnessBug where the task is at fault."""
        self.layout = Layout(self.problem)
        # In `full` the compiled reference stays beside the one whose turn it is.
        references = 1 + (self.numbers.compiled or self.problem.has_library)
        self.room = 1 if self.problem.large else self.transport.most_sets(self.layout, references)
        self.max_sets = min(_WARM_SETS, self.room)
        self.late = 0
        """Sampled positions of the student's outputs that changed after t1."""
        self.calls_us = 0.0
        """Time in calls of students and references, by the outside clock."""
        self._constant = Constant(0.0, 0.0)
        self._pool: ThreadPoolExecutor | None = None
        self._start_pool()
        self._warm = self._draw(self.max_sets)
        self._unverified: list[Unverified] = []
        self._memory: list[HostMemory] = []
        self._shared: HostMemory | None = None
        changed = adversarial.changes(self.problem)
        self._hard = list(dict.fromkeys(self.problem.task.values)) if changed else []

    def size_batches(self, client: WorkerClient) -> None:
        """Decide how many sets a batch may have: by the time of the reference, measured here, and by what
        reveals to the null project, or to a reference without its calls, cost."""
        if self.room == 1:  # of a large problem, one set fits beside the truth
            return
        self.plan(client, trusted=True)
        samples = Samples()
        for sets in (self.max_sets, *([1, self.max_sets] * _SCOUTS)):
            shown = self._warm.first(sets)
            _, reveal = self._reveal(client, shown, f"before {self.problem.label} is timed", timed=True)
            samples.add(0, reveal if client.is_null else without_work(reveal))
        samples.reveals.pop(0)  # sets itself up
        self._constant = constant_of(samples, robust=True)
        took_us = min(self._reference_us(self._warm.inputs[0]) for _ in range(_SCOUTS))
        warm = self._warm
        self._release_memory()
        self.max_sets = self._sets_for(took_us / _FASTER)
        self._warm = warm.first(self.max_sets)

    def _sets_for(self, call_us: float) -> int:
        fewest, most = self.numbers.batch_sets
        return batch_sets(self._constant, call_us, self.numbers.avoidable, fewest, min(most, self.room))

    def _reference_us(self, inputs: Tensors) -> float:
        start = time.perf_counter()
        self.problem.reference(inputs)
        self.transport.wait()
        return (time.perf_counter() - start) * 1e6

    def _draw(self, sets: int) -> InputSets:
        return InputSets(
            self._each(lambda _: self.problem.make_inputs(), range(sets)), [adversarial.OWN] * sets
        )

    def _each(self, act: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
        if self._pool is None or len(items) < 2:
            return in_turn(act, items)
        return list(self._pool.map(act, items))

    def _start_pool(self) -> None:
        """Threads of its own rather than torch's, which wait for each other at the end of every operation.
        Each has one core, so that none starts more threads for its own draws."""
        cores = iter(self.cores)

        def settle() -> None:
            os.sched_setaffinity(0, {next(cores)})

        if len(self.cores) > 1:
            self._pool = ThreadPoolExecutor(len(self.cores), initializer=settle)

    def plan(self, client: WorkerClient, *, trusted: bool) -> None:
        """Announce the problem. Raises Failed. On the host, memory for all sets stays mapped in the worker,
        which is frozen while inputs are written. Our own workers share theirs; a student's process has its
        own."""
        memory = None
        if self.transport.stops_with_process:
            memory = self._shared if trusted else None
            if memory is None:
                memory = HostMemory(self.layout.set_bytes * self.max_sets)
                memory.data.zero_()  # touches every page, so that none is charged to a worker that maps it
                self._memory.append(memory)
            if trusted:
                self._shared = memory
        client.plan(self.layout, self.max_sets, memory)

    def release(self, client: WorkerClient) -> None:
        memory = client.memory
        if isinstance(memory, HostMemory) and memory in self._memory and memory is not self._shared:
            self._memory.remove(memory)
            memory.close()

    def close(self) -> None:
        """Release memory and threads. A new plan allocates again."""
        self._release_memory()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _release_memory(self) -> None:
        while self._memory:
            self._memory.pop().close()
        self._shared = None
        self._warm = self._warm.first(1)

    def _reveal(
        self,
        client: WorkerClient,
        shown: InputSets,
        doing: str,
        *,
        rounds: int = 1,
        mode: Mode = "eager",
        timed: bool = False,
        keep: bool = False,
    ) -> tuple[Unverified | None, Reveal]:
        """`timed`: by the outside clock; `keep`: copy the outputs."""
        if client.memory is not None:
            client.freeze(True)
        with Arena(self.layout, shown.inputs, 0xFF, self.transport, client.memory, self._each) as arena:
            sample = None
            if timed and isinstance(self.transport, CudaTransport):
                sample = OutputSample(arena, shown.inputs, self.transport)
            snapshot, reveal = client.call(
                arena, len(shown.inputs), doing, rounds, mode, sample=sample, keep=keep
            )
        return Unverified(arena, shown, snapshot) if keep else None, reveal

    def warm_up(self, client: WorkerClient, seconds: float) -> float:
        """Calls for at least `seconds`; microseconds of a call in the last reveal, outside. Raises Failed."""
        start, rounds, calls, pace_us = time.perf_counter(), 1, 0, 0.0
        while calls < self.numbers.warm_up_calls or time.perf_counter() - start < seconds:
            doing = f"while warming up on {self.problem.label}"
            _, reveal = self._reveal(client, self._warm, doing, rounds=rounds)
            calls += reveal.calls
            pace_us = reveal.outside_us / reveal.calls
            # Grow towards a reveal of a tenth of a second, so that few are needed.
            took_s = max(reveal.outside_us / 1e6, 1e-4)
            rounds = min(_MAX_ROUNDS, max(rounds, int(rounds * _WARM_REVEAL_S / took_s)))
        if not self.transport.stops_with_process:
            # The first reveal of so many sets makes their tensors, and memory for a reference's results.
            warm, sets = self._warm.inputs, self._max_batch(pace_us)
            everything = InputSets([warm[i % len(warm)] for i in range(sets)], [adversarial.OWN] * sets)
            self._reveal(client, everything, f"while warming up on {self.problem.label}")
        return pace_us

    def visit(self, pace_us: float = 0.0) -> Visit:
        """The reveals of one visit to the student: a single, which finds the caches as others left them, then
        in secret order a batch and what else there is. `pace_us`: about what a call takes; slow students get
        small batches."""
        sizes = [1] * self.random.randint(*self.numbers.calls_per_visit)
        sizes.append(self._batch(pace_us))
        if self.problem.large:
            sizes = [1]
        shown = [self._draw(size) for size in sizes]
        if self._hard and self.random.random() < self.numbers.probed:
            shown.append(self._probe(self._batch(pace_us) if self.random.random() < _LARGE_PROBES else 1))
        rest = shown[1:]
        self.random.shuffle(rest)
        return [shown[0], *rest]

    def _batch(self, pace_us: float) -> int:
        most = self._max_batch(pace_us)
        return self.random.randint(max(2, most * 3 // 4), most) if most > 1 else 1

    def _max_batch(self, pace_us: float) -> int:
        wanted = self._sets_for(pace_us) if pace_us > 0 else self.max_sets
        return min(self.max_sets, max(2, min(wanted, int(_BATCH_S * 1e6 / max(pace_us, 1.0)))))

    def _probe(self, sets: int) -> InputSets:
        kinds = [adversarial.OWN] * sets
        for place in self.random.sample(range(sets), max(1, int(_HARD_SHARE * sets))):
            kinds[place] = self.random.choice(self._hard)
        inputs = self._each(lambda kind: adversarial.make(self.problem, kind), kinds)
        return InputSets(inputs, kinds, scored=False)

    def _max_shown(self, pace_us: float) -> int:
        """Sets of a batch that a reference is shown. On the host as many as the student, unless they take too
        long: a reveal's first call is slower, and a smaller batch would make a reference look slower."""
        if not self.transport.stops_with_process:
            return self._max_batch(pace_us)
        return min(self.max_sets, max(2, int(_BATCH_S * 1e6 / max(pace_us, 1.0))))

    def again(self, visit: Visit, pace_us: float) -> Visit:
        """The same inputs for a reference: no more sets than it is shown, and no probes."""
        most = self._max_shown(pace_us)
        return [one.first(most) for one in visit if one.scored]

    def for_null(self, visit: Visit, paces_us: Sequence[float]) -> Visit:
        """The same inputs for the null project, on a device: batches of the student's sizes and of each
        reference's, so that what a reveal costs need not be linear in its sets."""
        shown = self.again(visit, 0.0)
        batches = [one for one in shown if len(one.inputs) > 1]
        sizes = {(one_at, self._max_shown(us)) for one_at in range(len(batches)) for us in paces_us}
        fewer = [(batches[at], most) for at, most in sorted(sizes) if most < len(batches[at].inputs)]
        return [*shown, *(one.first(most) for one, most in fewer)]

    def reveal(self, client: WorkerClient, visit: Visit, samples: Lanes, block: int, *, keep: bool) -> float:
        """Make the reveals of a visit; `keep` what came back, to be verified. The least outside time of a
        call over the scored reveals, in microseconds. Raises Failed."""
        pace_us = math.inf
        for shown in visit:
            doing = f"while timed on {self.problem.label}"
            taken, reveal = self._reveal(client, shown, doing, timed=True, keep=keep)
            self.late += reveal.late
            if not client.is_null:
                self.calls_us += max(reveal.outside_us - self._constant.of(reveal), 0.0)
            if taken is not None:
                self._unverified.append(taken)
            if self.problem.large or self._pending(self.layout.kept_bytes):
                self.verify()
            if not shown.scored:
                continue
            # With room for one set only, every reveal serves both lanes.
            if reveal.calls == 1:
                samples["call"].add(block, reveal)
            if reveal.calls > 1 or self.max_sets == 1:
                samples["batch"].add(block, reveal)
            pace_us = min(pace_us, reveal.outside_us / reveal.calls)
        if self._pending(self.layout.kept_bytes + self.layout.input_bytes):
            self.verify()
        return pace_us

    def _pending(self, set_bytes: int) -> bool:
        """Whether what waits to be verified is more than may wait."""
        return sum(len(one.snapshot) for one in self._unverified) * set_bytes > self.transport.pending_bytes

    def secondary(self, client: WorkerClient, mode: SecondaryMode, *, keep: bool) -> Secondary | None:
        """One batch in another mode, after one that prepares it; None without a claim for it. Raises
        Failed."""
        doing = f"in mode {mode} on {self.problem.label}"
        claim_us = None
        sets = len(self._warm.inputs)
        for shown in (self._warm, self._draw(sets)):
            taken, reveal = self._reveal(client, shown, doing, mode=mode, keep=keep)
            if reveal.mode != mode:
                return None
            if taken is not None:
                self._unverified.append(taken)
            claim_us = reveal.claim_us
        if claim_us is None:
            return None
        return Secondary(mode=mode, claimed_us=claim_us / sets, calls=sets)

    def verify(self) -> None:
        pending, self._unverified = self._unverified, []
        for one in pending:
            results = one.arena.results(one.snapshot)
            sets = list(zip(one.shown.kinds, one.shown.inputs, results, strict=True))
            for finding in self._each(self._finding, sets):
                if finding is not None:
                    raise Failed(finding)

    def _finding(self, one: tuple[str, Tensors, SetResult]) -> Finding | None:
        kind, inputs, result = one
        verifier = Verifier(self.problem, Case(self.problem, values=kind), timed=True)
        return verifier.integrity(result) or verifier.values(inputs, result.outputs)
