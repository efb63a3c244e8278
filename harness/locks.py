"""File locks between processes. A wait is logged with the holder's pid and command, read from /proc/locks."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from harness.text import clean, shorten

_logger = logging.getLogger(__name__)

_SOON_S: Final = 1.0
"""Shorter waits are not logged."""
_AGAIN_S: Final = 60.0
_UNSEEN: Final = 5
"""Consecutive samples without a holder before that is logged: the lock may be changing hands."""
_COMMAND_CHARS: Final = 80
_SHOWN: Final = 3

_log_lock = threading.Lock()
_logged: set[str] = set()
"""Locks whose wait another thread of this process already logs."""


def holders(*paths: Path) -> dict[int, str]:
    """Pid and command of the processes that hold any of these locks, this one included.

    Empty where /proc/locks is missing.
    """
    found: set[int] = set()
    with suppress(OSError):  # no /proc/locks (gVisor)
        table = Path("/proc/locks").read_text()
        for path in paths:
            with suppress(FileNotFoundError):
                found |= _pids(table, path.stat())
    return {pid: _command(pid) for pid in sorted(found)}


def held_by(path: Path) -> str:
    """The holders as text, such as `pid 12 (liftbench eval my-skill)`."""
    return _text(holders(path))


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file `path`; a wait is logged as one for `what`."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with announced(what, path):
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def flock(file: TextIOWrapper, kind: int, what: str, *paths: Path) -> None:
    """fcntl.flock; a wait is logged with the holders of `paths`."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        with announced(what, *paths):
            fcntl.flock(file, kind)


@contextmanager
def announced(what: str, *paths: Path) -> Iterator[None]:
    """Log a wait after a second, then every minute, with the holders of `paths`, and its end.

    Waits for other threads of this process are not logged.
    """
    over = threading.Event()
    logger = threading.Thread(target=_log_wait, args=(what, paths, over), daemon=True)
    logger.start()
    try:
        yield
    finally:
        over.set()
        logger.join()


def _log_wait(what: str, paths: tuple[Path, ...], over: threading.Event) -> None:
    start = time.monotonic()
    mine, unseen = False, 0
    while not over.wait(_AGAIN_S if mine else _SOON_S):
        found, waited = holders(*paths), time.monotonic() - start
        others = {pid: command for pid, command in found.items() if pid != os.getpid()}
        unseen = 0 if found else unseen + 1
        if not others and unseen < _UNSEEN:
            continue
        with _log_lock:
            if not mine and what in _logged:
                continue
            _logged.add(what)
        since = f", for {waited:.0f} s now" if mine else ""
        _logger.warning("waiting for %s%s: held by %s", what, since, _text(others))
        mine = True
    if mine:
        _logged.discard(what)
        _logger.warning("waited %.0f s for %s; going on", time.monotonic() - start, what)


def _text(found: Mapping[int, str]) -> str:
    if not found:
        return "a process that is not visible from here"
    said = [f"pid {pid} ({command})" for pid, command in found.items()]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(said[:_SHOWN]) + more


def _pids(table: str, file: os.stat_result) -> set[int]:
    """Holders of a file in lines such as `1: FLOCK  ADVISORY  WRITE 123 fe:00:16040025 0 EOF`."""
    found = set()
    for line in table.splitlines():
        words = line.split()
        if len(words) < 6 or words[1] != "FLOCK":  # `->` marks a waiter
            continue
        pid, (device, _, inode) = int(words[4]), words[5].rpartition(":")
        if int(inode) == file.st_ino and _same_file(pid, device, file):
            found.add(pid)
    return found


def _same_file(pid: int, device: str, file: os.stat_result) -> bool:
    """Whether the holder has this very file open, not another with its inode number.

    The table's device number differs from stat's on btrfs and overlayfs, so it decides only where the holder
    belongs to another user, or has ended and left the lock to a child.
    """
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return device == f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}"
    for descriptor in descriptors:
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(descriptor.stat(), file):
                return True
    return False


def _command(pid: int) -> str:
    """Command line without interpreter and folder, cleaned and shortened."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return "ended; a child still holds it"
    if len(words) > 1 and Path(words[0]).name.startswith("python") and not words[1].startswith("-"):
        words = words[1:]
    return shorten(clean(" ".join([Path(words[0]).name, *words[1:]])).replace("\n", " "), _COMMAND_CHARS)
