"""Compiler slots: how many compilers the processes of this machine may run at once."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from harness.locks import announced, flock

COMPILER_BYTES: Final = 5 << 30
"""Memory of one nvcc on a file with all of torch's headers: cudafe++ and cicc run at once, with peaks of
2.1 and 2.7 GB; g++ takes 1.4 GB."""
_POLL_S: Final = 0.1
_SLOT: Final = "a compiler slot of this machine"
_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


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


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class CompilerSlots:
    """Limits the compilers of all processes: one per core, and beyond the first as many as memory allows.

    Slots are file locks, so the kernel frees them however their holder ends.
    """

    directory: Path
    cores: Callable[[], int] = _cores
    memory: Callable[[], int] = available_bytes

    @contextmanager
    def taken(self, most: int) -> Iterator[int]:
        """Wait for a slot, take up to `most` free ones, and yield how many were taken."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            slots = [self.directory / f"slot-{number}" for number in range(max(1, self.cores()))]
            # One process waits for slots; the others queue for the gate, so none is overtaken forever.
            with (self.directory / "slots.gate").open("w") as gate:
                flock(gate, fcntl.LOCK_EX, _SLOT, *slots)
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
