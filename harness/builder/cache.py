"""The cache folder, shared by all processes: finished builds by content key, and compiler slots.

A key covers the whole project, the target and the toolchain. An entry appears by one rename and is never
changed. Nothing smaller than a build is shared, because the text of one file does not tell which files its
object depends on.

    <cache>/<key[:2]>/<key>/
      result.json  manifest.json  build.log
      build/<variant>/__init__.py ...     as `kernels` expects a local build; absent if the build failed
    <cache>/locks/slot-0 ...
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from harness.errors import UsageError
from harness.files import directory_atomically
from harness.locks import announced, flock, locked
from harness.records import BuildResult

SIZE_VARIABLE: Final = "LIFTBENCH_CACHE_GIB"
_DEFAULT_GIB: Final = 10
"""A build has 0.1 to 12 MB, so this is enough for thousands of projects."""
_SHARD: Final = "[0-9a-f][0-9a-f]"
_IN_USE_S: Final = 24 * 3600.0
"""Entries used within the last day are kept: in a long run hours pass between build and timing."""


def size_limit_bytes() -> int:
    """Limit on the size of all builds together. Raises UsageError if the variable is not a number."""
    text = os.environ.get(SIZE_VARIABLE, str(_DEFAULT_GIB))
    if not text.isdecimal():
        raise UsageError(f"{SIZE_VARIABLE}={text!r}: give a whole number of GiB, such as {_DEFAULT_GIB}")
    return int(text) << 30


@dataclass(frozen=True)
class Entry:
    """A finished build in the cache."""

    result: BuildResult
    path: Path

    @property
    def package(self) -> Path | None:
        """The variant's package; None if the build failed."""
        variant = self.result.variant
        return self.path / "build" / variant if self.result.ok and variant is not None else None


@dataclass(frozen=True)
class BuildCache:
    """A folder of builds; several processes may use it at once."""

    root: Path

    def _path(self, key: str) -> Path:
        return self.root / key[:2] / key

    def lock(self, key: str) -> AbstractContextManager[None]:
        """Held while `key` is built; a process that waited for it finds the entry."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        return locked(path.with_suffix(".lock"), "the same build by another process")

    def load(self, key: str) -> Entry | None:
        """The entry; None if there is none, or if its bytes have changed."""
        path = self._path(key)
        try:
            manifest = json.loads((path / "manifest.json").read_bytes())
            if manifest != _manifest(path):
                return None
            result = BuildResult.model_validate_json((path / "result.json").read_bytes())
        except (OSError, ValueError, ValidationError):
            return None
        with suppress(OSError):  # a read-only cache, or an entry that another process removes
            os.utime(path)
        return Entry(result, path) if result.key == key else None

    def store(self, result: BuildResult, files: Mapping[str, bytes]) -> Entry:
        """Write an entry with `files` (path in the entry -> contents); the caller holds the lock."""
        final = self._path(result.key)
        final.parent.mkdir(parents=True, exist_ok=True)
        # An entry that `load` refused, damaged or of an older schema, is replaced.
        with directory_atomically(final) as fresh:
            for name, contents in files.items():
                target = fresh / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(contents)
            (fresh / "result.json").write_text(result.model_dump_json(indent=1) + "\n")
            (fresh / "manifest.json").write_text(json.dumps(_manifest(fresh), indent=1) + "\n")
            fresh.chmod(0o755)
        evict((entry for entry in self.root.glob(f"{_SHARD}/*") if entry.is_dir()), size_limit_bytes())
        return Entry(result, final)


def _manifest(path: Path) -> dict[str, str]:
    """SHA-256 of every file but the manifest and Python's byte code."""
    return {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "manifest.json" and file.parent.name != "__pycache__"
    }


def evict(entries: Iterable[Path], limit_bytes: int, now: float | None = None) -> None:
    """Remove the least recently used entries above `limit_bytes`, but none used within the day before `now`
    (seconds since the epoch)."""
    oldest = (time.time() if now is None else now) - _IN_USE_S
    ranked = sorted(map(_measured, entries), reverse=True)
    kept = 0
    for used_at, size, entry in ranked:
        kept += size
        if kept > limit_bytes and used_at < oldest:
            doomed = entry.with_name(f".old-{entry.name}")
            with suppress(OSError):
                entry.rename(doomed)  # first, so that no process finds half an entry
                shutil.rmtree(doomed, ignore_errors=True)
            kept -= size


def _measured(entry: Path) -> tuple[float, int, Path]:
    """Time of the last use, size in bytes, and the entry; zeros if another process removes it."""
    with suppress(OSError):
        sizes = (file.lstat().st_size for file in entry.rglob("*") if not file.is_dir())
        return entry.stat().st_mtime, sum(sizes), entry
    return 0.0, 0, entry


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
