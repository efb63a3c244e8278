"""Compiler slots: how many compilers the processes of this machine may run at once."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from harness.locks import announced, flock

_logger = logging.getLogger(__name__)

COMPILER_BYTES: Final = 5 << 30
"""Memory of one nvcc on a file with all of torch's headers: cudafe++ and cicc run at once, with peaks of
2.1 and 2.7 GB; g++ takes 1.4 GB."""
_POLL_S: Final = 0.1
_SLOT: Final = "a compiler slot of this machine"
_MEMINFO: Final = Path("/proc/meminfo")
_VMSTAT: Final = Path("/proc/vmstat")
_BALLOONS: Final = Path("/sys/bus/virtio/drivers/virtio_balloon")
_CGROUP: Final = Path("/sys/fs/cgroup")
_DEFLATES_ON_OOM: Final = 2
"""Number of this feature of a virtio balloon; features are listed as one digit each."""
_TOUCH_S: Final = 120.0
_TOUCH: Final = """
import mmap, sys
with open("/proc/self/oom_score_adj", "w") as file:
    file.write("1000")
held = mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for start in range(0, len(held), mmap.PAGESIZE):
    held[start] = 1
"""


def free_bytes() -> int:
    """Available memory of the machine."""
    words = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines() if ":" in line)
    return int(words["MemAvailable"].split()[0]) << 10


def available_bytes() -> int:
    """Available memory of the machine, or of the container if it has a lower limit."""
    free = free_bytes()
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):  # there is no such group, or its limit is `max`
        return free
    return min(free, max(0, limit - used))


def balloon_bytes(vmstat: Path = _VMSTAT, balloons: Path = _BALLOONS) -> int:
    """Memory that the hypervisor holds back and gives to a guest that runs out: it is not in MemAvailable."""
    features = [(one / "features").read_text() for one in balloons.glob("virtio[0-9]*")]
    if not any(bits[_DEFLATES_ON_OOM : _DEFLATES_ON_OOM + 1] == "1" for bits in features):
        return 0
    counters = dict(line.split() for line in vmstat.read_text().splitlines())
    taken = int(counters.get("balloon_inflate", 0)) - int(counters.get("balloon_deflate", 0))
    return max(0, int(counters.get("nr_balloon_pages", taken))) * os.sysconf("SC_PAGE_SIZE")


def touch_memory(size: int) -> None:
    """Write to `size` bytes, so that the hypervisor gives them to this machine. They are freed again.

    In a process that the kernel kills before any other if there is less memory than that.
    """
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _TOUCH, str(size)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TOUCH_S,
            check=False,
        )


def grown_bytes(
    wanted: int,
    available: Callable[[], int] = available_bytes,
    balloon: Callable[[], int] = balloon_bytes,
    touch: Callable[[int], None] = touch_memory,
) -> int:
    """Available memory, after as much of `wanted` was touched as the hypervisor holds back."""
    before = available()
    held = balloon() if before < wanted else 0
    if held == 0:
        return before
    touch(min(wanted, before + held))
    after = available()
    _logger.warning(
        "memory: %.1f GiB were available, and %.1f GiB after what the hypervisor held back was touched",
        before / 2**30,
        after / 2**30,
    )
    return after


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def counted_memory() -> str:
    """What compiler slots count, in words."""
    available, held, cores = available_bytes(), balloon_bytes(), _cores()
    room = min(cores, max(1, (available + held) // COMPILER_BYTES))
    more = f", {held / 2**30:.1f} GiB more where it is touched" if held else ""
    return f"{available / 2**30:.1f} GiB available{more}: room for {room} of {cores} compilers at once"


@dataclass(frozen=True)
class CompilerSlots:
    """Limits the compilers of all processes: one per core, and beyond the first as many as memory allows.

    Slots are file locks, so the kernel frees them however their holder ends.
    """

    directory: Path
    cores: Callable[[], int] = _cores
    memory: Callable[[], int] = available_bytes
    grow: Callable[[int], object] = grown_bytes
    """Called with the bytes that are wanted before the memory is counted."""

    @contextmanager
    def taken(self, most: int) -> Iterator[int]:
        """Wait for a slot, take up to `most` free ones, and yield how many were taken."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            slots = [self.directory / f"slot-{number}" for number in range(max(1, self.cores()))]
            # One process waits for slots; the others queue for the gate, so none is overtaken forever.
            with (self.directory / "slots.gate").open("w") as gate:
                flock(gate, fcntl.LOCK_EX, _SLOT, *slots)
                self.grow(min(max(1, most), len(slots)) * COMPILER_BYTES)
                count = self._take(slots, max(1, most), held)
                if not count:
                    with announced(_SLOT, *slots):
                        while not (count := self._take(slots, max(1, most), held)):
                            time.sleep(_POLL_S)
            yield count

    def _take(self, slots: list[Path], most: int, held: ExitStack) -> int:
        """Take what is free now; the caller holds the gate."""
        free: list[TextIOWrapper] = []
        for slot in slots:
            file = slot.open("w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
            else:
                free.append(file)
        busy = len(slots) - len(free)
        # Running compilers may not have reached their peak: their share is reserved.
        room = self.memory() // COMPILER_BYTES - busy
        count = max(0, min(most, len(free), room if busy else max(1, room)))
        for file in free[count:]:
            file.close()
        for file in free[:count]:
            held.callback(file.close)
        return count
