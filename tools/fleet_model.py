"""Simulates the queues of a fleet: build cores, devices, the driver; with stage times measured elsewhere.

    python -m tools.fleet_model --build-s 7 --device-s 15

Prints a Markdown table: samples per hour, and how busy GPUs, build cores and driver are. As in the pool, a
GPU has some orders under way: the others are built while one is on the device.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

GPUS_OF_A_NODE: Final = 8
SAMPLES_OF_A_GPU: Final = 60
_SPREAD: Final = 0.3
"""Stage times are drawn evenly from this share below their mean to as much above."""


@dataclass(frozen=True)
class Fleet:
    """Stage times in seconds, those of builds in CPU-seconds."""

    gpus: int
    build_cores: int
    """Of one node."""
    build_s: float
    device_s: float
    driver_s: float
    cached: float = 0.0
    """Share of samples whose build is in the cache."""
    at_once: int = 4
    """Orders under way per GPU."""
    files: int = 2
    """Of a build, compiled in parallel."""


class Use(NamedTuple):
    """What came of it; shares of the whole time."""

    per_hour: float
    gpu: float
    cores: float
    driver: float

    @property
    def bottleneck(self) -> str:
        share, name = max((self.gpu, "GPUs"), (self.cores, "build cores"), (self.driver, "driver"))
        return name if share > 0.9 else "orders under way"


def simulate(fleet: Fleet, seed: int = 1) -> Use:
    """Orders are taken whenever a GPU has too few; a device serves builds in the order in which they end."""
    draw = random.Random(seed)
    samples = fleet.gpus * SAMPLES_OF_A_GPU
    nodes = -(-fleet.gpus // GPUS_OF_A_NODE)
    cores = [[0.0] * fleet.build_cores for _ in range(nodes)]  # when each is free
    device, driver, used = [0.0] * fleet.gpus, 0.0, [0.0, 0.0]
    # When, what (an order begins, or its build is ready), and on which GPU.
    events = [(0.0, "begin", gpu) for _ in range(fleet.at_once) for gpu in range(fleet.gpus)]
    begun = 0
    while events:
        now_s, what, gpu = heapq.heappop(events)
        if what == "ready":
            device_s = fleet.device_s * _drawn(draw)
            device[gpu] = max(device[gpu], now_s) + device_s
            used = [used[0], used[1] + device_s]
            heapq.heappush(events, (device[gpu], "begin", gpu))
        elif begun < samples:
            begun += 1
            driver = ready_s = max(driver, now_s) + fleet.driver_s
            if draw.random() >= fleet.cached:
                build_s = fleet.build_s * _drawn(draw)
                ready_s = _built(cores[gpu // GPUS_OF_A_NODE], ready_s, build_s, fleet.files)
                used = [used[0] + build_s, used[1]]
            heapq.heappush(events, (ready_s, "ready", gpu))
    wall_s = max(device)
    return Use(
        per_hour=samples / wall_s * 3600,
        gpu=used[1] / wall_s / fleet.gpus,
        cores=used[0] / wall_s / fleet.build_cores / nodes,
        driver=samples * fleet.driver_s / wall_s,
    )


def _built(cores: list[float], begins_s: float, build_s: float, files: int) -> float:
    """When a build ends whose files are compiled on the cores that are free first."""
    ends = [max(begins_s, heapq.heappop(cores)) + build_s / files for _ in range(files)]
    for end in ends:
        heapq.heappush(cores, end)
    return max(ends)


def _drawn(draw: random.Random) -> float:
    return draw.uniform(1 - _SPREAD, 1 + _SPREAD)


def table(build_s: list[float], device_s: float, driver_s: float, build_cores: int) -> Iterator[str]:
    """For 8 and 64 GPUs; with nothing or nine in ten builds cached; with two or four orders per GPU."""
    yield "| GPUs | build, CPU-s | cached | orders a GPU | samples/h | GPUs busy | cores | driver | scarce |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for gpus, seconds, cached, at_once in itertools.product((8, 64), build_s, (0.0, 0.9), (2, 4)):
        use = simulate(Fleet(gpus, build_cores, seconds, device_s, driver_s, cached, at_once))
        given = f"| {gpus} | {seconds:g} | {cached:.0%} | {at_once} | {use.per_hour:,.0f} "
        yield given + f"| {use.gpu:.0%} | {use.cores:.0%} | {use.driver:.1%} | {use.bottleneck} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build-s", type=float, nargs="+", required=True, help="CPU-seconds of a build")
    parser.add_argument("--device-s", type=float, required=True, help="of check and timing")
    parser.add_argument("--driver-s", type=float, default=1 / 600, help="of the driver for one order")
    parser.add_argument("--build-cores", type=int, default=80, help="of a node of 8 GPUs")
    given = parser.parse_args()
    print("\n".join(table(given.build_s, given.device_s, given.driver_s, given.build_cores)))


if __name__ == "__main__":
    main()
