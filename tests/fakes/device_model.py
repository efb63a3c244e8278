"""A made-up device: what reveals to honest and forging workers cost, by figures like an H100's or an H200's.

Nothing here was measured on a GPU. A reveal takes hand_shake + per_set * K + work, with context switches,
launches from Python, clocks that ramp, and noise. Everything is drawn from a seed; nothing reads a clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from harness.judge.candidates import NULL, STUDENT
from harness.judge.check import problems
from harness.judge.clock import Constant, Lanes, Samples, constant_of, lanes
from harness.judge.guarded_buffers import Layout
from harness.judge.output_sample import POSITIONS
from harness.judge.problem import Problem
from harness.judge.protocol import numbers_of
from harness.judge.reveals import _BATCH_S, _FASTER, _SCOUTS, _WARM_SETS, batch_sets
from harness.judge.shared_memory import most_sets
from harness.judge.worker_reply import Reveal
from harness.suite.catalogue import all_tasks

NUMBERS = numbers_of("quick", on_device=True)
BATCHES = NUMBERS.clean_blocks
"""Scored reveals of one measurement."""
SAMPLE_US = 60.0
"""From `done` until a sample of the outputs has been read; part of the hand-shake."""


@dataclass(frozen=True)
class DeviceModel:
    name: str = "like an H100"
    memory_bytes: int = 80 * 10**9
    bytes_per_us: float = 2.9e6
    flops_per_us: float = 600e6
    hand_shake_us: float = 350.0
    switch_us: float = 40.0
    """Of the device between judge and worker, there and back."""
    per_set_us: float = 0.3
    per_mib_us: float = 0.01
    """Mapping of a set, by its size."""
    launch_us: float = 8.0
    first_us: float = 5.0
    """What the first launch of a call takes longer than the null project's."""
    noise: float = 0.08
    """Of hand-shake and switches, as a share (log-normal)."""
    call_noise: float = 0.01
    clock_noise: float = 0.015
    """Of the device's clock between turns, as a share."""
    # What the outside clock does not assume:
    second_mode_us: float = 0.0
    """Longer hand-shake in a third of the reveals."""
    bend: float = 0.0
    """Cost of sets grows as K^(1 + bend)."""
    drift: float = 0.0
    """The hand-shake grows by this share from block to block."""
    tail: float = 0.0
    """Share of the reveals in which a context switch takes a millisecond or more (Pareto)."""
    ramp: float = 0.0
    """Share by which the clock is slower in the first reveal of a turn; half of that in the next."""
    null_less_us: float = 0.0
    """What a reveal to the null project costs less than one to any other."""

    def work_us(self, bytes_moved: int, flops: int | None) -> float:
        return max(bytes_moved / self.bytes_per_us, (flops or 0) / self.flops_per_us, 2.0)

    def call_us(self, work_us: float, launches: int = 1) -> float:
        """Of one of many calls: the work, or its launches from Python."""
        return max(work_us, launches * self.launch_us)

    def constant_us(self, sets: int, set_bytes: int, block: int, random: Random) -> float:
        shake = self.hand_shake_us * (1 + self.drift * block) + self.switch_us
        shake *= math.exp(random.gauss(0.0, self.noise))
        if random.random() < 1 / 3:
            shake += self.second_mode_us
        if random.random() < self.tail:
            shake += 1000.0 * random.paretovariate(2.0)
        per_set = self.per_set_us + self.per_mib_us * set_bytes / 2**20
        return shake + per_set * sets ** (1 + self.bend)


H100 = DeviceModel()
H200 = DeviceModel("like an H200", memory_bytes=141 * 10**9, bytes_per_us=4.2e6)
UNASSUMED = {
    "two kinds of hand-shake, 200 us apart": replace(H100, second_mode_us=200.0),
    "two kinds of hand-shake, 600 us apart": replace(H100, second_mode_us=600.0),
    "sets cost K^1.3": replace(H100, bend=0.3),
    "hand-shake grows by half per block": replace(H100, drift=0.5),
    "3 % of switches take 1 ms or more": replace(H100, tail=0.03),
    "clocks begin each turn 10 % slow": replace(H100, ramp=0.1),
    "mapping costs 10 times as much": replace(H100, per_mib_us=0.1),
    "reveals to the null project cost 20 us less": replace(H100, null_less_us=20.0),
}
"""Devices on which the clock's assumptions do not hold."""


@dataclass(frozen=True)
class Timed:
    """A timed workload: the reference's work per call, and the sizes that bound its batches."""

    task: str
    name: str
    reference_us: float
    set_bytes: int
    room: int
    """Sets of one arena."""
    outputs: tuple[int, ...]
    """Elements of each output."""


@cache
def _problems() -> tuple[tuple[Problem, Layout], ...]:
    first = {
        (p.task.id, p.workload.name): p
        for loaded in all_tasks()
        for p in reversed(problems(loaded, "cuda", timed_only=True))
    }
    return tuple((p, Layout(p)) for p in sorted(first.values(), key=lambda p: (p.task.id, p.workload.name)))


def workloads(device: DeviceModel) -> list[Timed]:
    """Every timed workload of the catalogue, in its first dtype for CUDA."""
    return [
        Timed(
            task=p.task.id,
            name=p.workload.name,
            reference_us=device.work_us(p.bytes_moved, p.flops),
            set_bytes=layout.set_bytes,
            room=most_sets(layout, device.memory_bytes, 1 + p.has_library),
            outputs=tuple(slot.size // slot.dtype.itemsize for slot in layout.written),
        )
        for p, layout in _problems()
    ]


Hides = Callable[[float, float, int], float]


def _nothing(constant_us: float, work_us: float, sets: int) -> float:
    return 0.0


@dataclass(frozen=True)
class Worker:
    """How a worker's reveal differs from an honest one's."""

    speed: float = 1.0
    """Of its work, beside the reference's."""
    launches: int = 1
    claimed: float = 1.0
    """Claim over the true time."""
    hides: Hides = _nothing
    """(constant, work of the batch, sets) -> how much sooner than an honest worker's its clock stops."""


NULL_PROJECT = Worker(speed=math.inf)


def _largest_part(count: int) -> int:
    """Elements of an output of which one is read."""
    return -(-count // POSITIONS)


def unseen(count: int, deferred: int, *, tail: bool) -> float:
    """Highest probability that a sample of an output with `count` elements has none of the `deferred` ones:
    the last ones (`tail`), or as even a share of all parts as there is. No order of stores does better than
    the latter: with x_i the deferred share of part i, prod(1 - x_i) <= exp(-sum(x_i))."""
    parts, size = min(count, POSITIONS), _largest_part(count)
    if tail:
        return max(1.0 - deferred / size, 0.0)
    each, more = divmod(deferred, parts)
    one, other = max(1.0 - each / size, 0.0), max(1.0 - (each + 1) / size, 0.0)
    return float(one ** (parts - more) * other**more)


def escaping_share(outputs: Sequence[int], chance: float = 0.5) -> float:
    """Share of one call's elements that a worker can leave undone at t1, over all calls of a measurement
    together, to be unseen in all of it with that chance: in whatever order it stores, at most
    -ln(chance) parts of its largest output; none where all positions are read."""
    part = _largest_part(max(outputs))
    return 0.0 if part == 1 else -math.log(chance) * part / sum(outputs)


def measured(
    device: DeviceModel, timed: Timed, student: Worker, random: Random, *, blocks: int = NUMBERS.clean_blocks
) -> dict[str, Lanes]:
    """Samples of a student, a reference and the null project, by blocks as `quick` has them on a device."""
    found = {name: lanes() for name in (STUDENT, "eager", NULL)}
    constant = _scouted(device, timed, random)
    workers = {STUDENT: student, "eager": Worker(), NULL: NULL_PROJECT}
    fewest, most = NUMBERS.batch_sets
    share, top = NUMBERS.avoidable, min(most, timed.room)
    room = batch_sets(constant, timed.reference_us / _FASTER, share, fewest, top)

    def wanted(call_us: float) -> int:
        sets = batch_sets(constant, call_us, share, fewest, room)
        return min(room, max(2, min(sets, int(_BATCH_S * 1e6 / call_us))))

    largest, least = wanted(timed.reference_us / student.speed), wanted(timed.reference_us)
    for block in range(blocks):
        sizes = [1] * random.randint(*NUMBERS.calls_per_visit)
        sizes.append(random.randint(max(2, largest * 3 // 4), largest))
        for name, worker in workers.items():
            clock = math.exp(random.gauss(0.0, device.clock_noise))
            seen = [min(sets, least) for sets in sizes] if name == "eager" else sizes
            seen = [*seen, least] if name == NULL and least < max(sizes) else seen
            for place, shown in enumerate(seen):
                slower = clock * (1 + device.ramp / 2**place)
                reveal = _reveal(device, timed, worker, shown, block, slower, random)
                found[name]["call" if shown == 1 else "batch"].add(block, reveal)
    return found


def _scouted(device: DeviceModel, timed: Timed, random: Random) -> Constant:
    samples = Samples()
    for sets in [1, min(_WARM_SETS, timed.room)] * _SCOUTS:
        samples.add(0, _reveal(device, timed, NULL_PROJECT, sets, 0, 1.0, random))
    return constant_of(samples, robust=True)


def _reveal(
    device: DeviceModel, timed: Timed, worker: Worker, sets: int, block: int, clock: float, random: Random
) -> Reveal:
    work = timed.reference_us / worker.speed
    constant = device.constant_us(sets, timed.set_bytes, block, random)
    noise = math.exp(random.gauss(0.0, device.call_noise / math.sqrt(sets)))
    if not work:
        constant, busy = constant - device.null_less_us, device.launch_us + 3.0
    else:
        per_call = device.call_us(work * clock, worker.launches)
        busy = per_call * sets * noise + device.first_us
        if per_call <= work * clock:  # else the time of all launches is in it
            busy += device.launch_us
    return Reveal(
        calls=sets,
        outside_us=constant + busy - worker.hides(constant, busy, sets),
        latency_us=SAMPLE_US,
        claim_us=busy * worker.claimed,
    )
