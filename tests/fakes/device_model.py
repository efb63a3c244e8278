"""A made-up device: what reveals to honest and forging workers cost, by figures like an H100's or an H200's.

Nothing here was measured on a GPU. A reveal takes hand_shake + per_set * K + work, with context switches,
launches from Python, clocks that ramp, and noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from harness.judge.candidates import NULL, STUDENT
from harness.judge.clock import Constant, Lanes, Samples, constant_of, lanes
from harness.judge.reveals import _BATCH_S, batch_sets
from harness.judge.worker_reply import Reveal

_FASTER = 2.0


@dataclass(frozen=True)
class DeviceModel:
    name: str = "like an H100"
    memory_bytes: float = 80e9
    bytes_per_us: float = 2.9e6
    flops_per_us: float = 600e6
    hand_shake_us: float = 350.0
    switch_us: float = 40.0
    """Of the device between judge and worker, there and back."""
    per_set_us: float = 0.3
    per_mib_us: float = 0.01
    """Mapping of a set, by its size."""
    launch_us: float = 8.0
    hold_us: float = 30.0
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

    def work_us(self, bytes_moved: int, flops: int | None) -> float:
        return max(bytes_moved / self.bytes_per_us, (flops or 0) / self.flops_per_us, 2.0)

    def constant_us(self, sets: int, set_bytes: int, block: int, random: Random) -> float:
        shake = self.hand_shake_us * (1 + self.drift * block) + self.switch_us
        shake *= math.exp(random.gauss(0.0, self.noise))
        if random.random() < 1 / 3:
            shake += self.second_mode_us
        if random.random() < self.tail:
            shake += 1000.0 * random.paretovariate(2.0)
        per_set = self.per_set_us + self.per_mib_us * set_bytes / 2**20
        return shake + self.hold_us + per_set * sets ** (1 + self.bend)


H100 = DeviceModel()
H200 = DeviceModel("like an H200", memory_bytes=141e9, bytes_per_us=4.2e6)


@dataclass(frozen=True)
class Timed:
    """A timed workload: the reference's time per call, and the sizes that bound its batches."""

    label: str
    reference_us: float
    set_bytes: int
    room: int


@dataclass(frozen=True)
class Worker:
    """How a worker's reveal differs from an honest one's."""

    speed: float = 1.0
    """Of the reference."""
    claimed: float = 1.0
    """Claim over the true time."""
    hidden_us: Callable[[int, float], float] = field(default=lambda sets, work_us: 0.0)
    """(sets, work of the batch) -> how much earlier than the end of its work the clock stops."""


HONEST = Worker()


def measured(
    device: DeviceModel,
    timed: Timed,
    student: Worker,
    random: Random,
    *,
    blocks: int = 3,
    most: int = 1024,
) -> dict[str, Lanes]:
    """Samples of a student, a reference and the null project, by blocks as `quick` has them on a device."""
    found = {name: lanes() for name in (STUDENT, "eager", NULL)}
    constant = _scouted(device, timed, random)
    workers = {STUDENT: student, "eager": HONEST, NULL: Worker(speed=math.inf)}
    room = batch_sets(constant, timed.reference_us / _FASTER, 0.02, 2, min(most, timed.room))

    def wanted(call_us: float) -> int:
        sets = batch_sets(constant, call_us, 0.02, 2, room)
        return min(room, max(2, min(sets, int(_BATCH_S * 1e6 / call_us))))

    for block in range(blocks):
        for _ in range(2):
            largest = wanted(timed.reference_us / student.speed)
            sizes = [1] * random.randint(1, 3) + [random.randint(max(2, largest * 3 // 4), largest)]
            for name, worker in workers.items():
                clock = math.exp(random.gauss(0.0, device.clock_noise))
                least = wanted(timed.reference_us)
                seen = [min(sets, least) for sets in sizes] if name == "eager" else sizes
                seen = [*seen, least] if name == NULL and least < max(sizes) else seen
                for shown in seen:
                    reveal = _reveal(device, timed, worker, shown, block, clock, random)
                    lane = "call" if shown == 1 else "batch"
                    found[name][lane].add(block, reveal)
    return found


def _scouted(device: DeviceModel, timed: Timed, random: Random) -> Constant:
    samples = Samples()
    for sets in [1, min(8, timed.room)] * 4:
        samples.add(0, _reveal(device, timed, Worker(speed=math.inf), sets, 0, 1.0, random))
    return constant_of(samples)


def _reveal(
    device: DeviceModel, timed: Timed, worker: Worker, sets: int, block: int, clock: float, random: Random
) -> Reveal:
    work = timed.reference_us / worker.speed
    per_call = max(work * clock, device.launch_us) if work else 0.0
    busy = per_call * sets * math.exp(random.gauss(0.0, device.call_noise / math.sqrt(sets))) if work else 3.0
    busy = max(busy - (device.hold_us if per_call == device.launch_us else 0.0), per_call)
    constant = device.constant_us(sets, timed.set_bytes, block, random)
    hidden = min(worker.hidden_us(sets, busy), busy)
    return Reveal(
        calls=sets,
        outside_us=constant + busy - hidden,
        latency_us=60.0,
        claim_us=busy * worker.claimed,
    )
