"""How many compilers may run at once on this machine, over all processes of liftbench.

The slots in use are never more than the cores, and beyond the first one never more than memory allows; a
slot is free again when its holder ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from harness.locks import announced, flock

COMPILER_BYTES: Final = 5 << 30
"""Of nvcc on a file with all of torch's headers: cudafe++ and cicc run at once, with peaks of 2.1 and
2.7 GB (docs/building.md); g++ takes 1.4 GB."""
_POLL_S: Final = 0.1
_WHAT: Final = "a compiler slot of this machine"
_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Memory that is free for more compilers: the machine's, and the container's where it has a limit."""
    words = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines() if ":" in line)
    free = int(words["MemAvailable"].split()[0]) << 10
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):  # no such group, or `max`
        return free
    return min(free, max(0, limit - used))


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class CompileSlots:
    """The slots of one cache; several threads and processes may use it at once."""

    def __init__(
        self,
        directory: Path,
        *,
        cores: Callable[[], int] = _cores,
        memory: Callable[[], int] = available_bytes,
    ) -> None:
        self._directory = directory
        self._cores = cores
        self._memory = memory

    @contextmanager
    def taken(self, most: int) -> Iterator[int]:
        """Waits for a slot, takes up to `most` of those that are free, and yields how many."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            # One waits at a time, the others behind it: nobody is overtaken for ever.
            slots = [self._slot(number) for number in range(max(1, self._cores()))]
            with (self._directory / "slots.gate").open("w") as gate:
                flock(gate, fcntl.LOCK_EX, _WHAT, *slots)
                count = self._take(max(1, most), held)
                if not count:
                    with announced(_WHAT, *slots):
                        while not (count := self._take(max(1, most), held)):
                            time.sleep(_POLL_S)
            yield count

    def _slot(self, number: int) -> Path:
        return self._directory / f"slot-{number}"

    def _take(self, most: int, held: ExitStack) -> int:
        """Take what may be taken now. Whoever holds the gate is alone here."""
        free: list[TextIOWrapper] = []
        cores = max(1, self._cores())
        for number in range(cores):
            file = self._slot(number).open("w")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
            else:
                free.append(file)
        busy = cores - len(free)
        # Those that run may not have reached their peak yet: their share is kept free as well.
        room = self._memory() // COMPILER_BYTES - busy
        count = min(most, len(free), room if busy else max(1, room))
        for file in free[max(0, count) :]:
            file.close()
        for file in free[: max(0, count)]:
            held.callback(file.close)
        return max(0, count)
