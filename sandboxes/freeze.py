"""Stops every thread of a process group and confirms that each one has stopped.

The kernel delivers a group's SIGSTOP to one thread per process, by preference the first, and that thread
stops the others. While it waits in vfork() or is in a long system call the others run on (measured:
indefinitely, and 0.8 s while it filled 3 GB of memory). So each thread is signalled individually.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Final

from harness.files import read_quickly
from sandboxes.job import STOP_S, UnstoppableError
from sandboxes.seccomp import numbers

_LIBC: Final = ctypes.CDLL(None)
_NUMBERS: Final = numbers(os.uname().machine)
_TGKILL: Final = _NUMBERS["tgkill"]
_STOPPED: Final = frozenset((b"T", b"t", b"Z", b"X", b""))
"""proc(5): stopped, stopped by a tracer, zombie, dead; or ended."""
_FORKS: Final = frozenset(b"%d" % _NUMBERS[name] for name in ("clone", "vfork") if name in _NUMBERS)
_SPIN_S: Final = 0.0002
_PAUSE_S: Final = 0.0001
_ENDED: Final = (FileNotFoundError, ProcessLookupError)


def confirm_stopped(members: Callable[[], Iterable[int]], group: int, within_s: float = STOP_S) -> float:
    """Stop all threads of those `members` that are in process group `group`, which was sent SIGSTOP.

    When (time.monotonic()) all had stopped: then no thread runs user code or is inside a system call that
    could still write. Two consecutive scans must find the same threads, all stopped: a list of processes that
    is read while one of them ends may be incomplete. The time is that of the first of both: a process with a
    signal to act on creates no thread before it has. Raises UnstoppableError after `within_s`.
    """
    began = now = time.monotonic()
    before: set[int] | None = None
    while True:
        seen, stopped = _scan(members(), group)
        if stopped and seen == before:
            return now
        now, before = time.monotonic(), seen if stopped else None
        if now - began > within_s:
            raise UnstoppableError(f"some thread did not stop within {within_s:.0f} s")
        # Spin first: sleeping costs more than most threads need, and sched_yield may cost 1.5 ms.
        if not stopped and now - began > _SPIN_S:
            time.sleep(_PAUSE_S)


def _scan(processes: Iterable[int], group: int) -> tuple[set[int], bool]:
    """The threads, and whether all have stopped; those that have not are signalled again."""
    seen: set[int] = set()
    stopped = True
    for pid in processes:
        try:
            threads = os.listdir(f"/proc/{pid}/task") if os.getpgid(pid) == group else []  # noqa: PTH208
        except _ENDED:
            continue
        for thread in threads:
            seen.add(int(thread))
            if not _has_stopped(f"/proc/{pid}/task/{thread}"):
                stopped = False
                _LIBC.syscall(_TGKILL, pid, int(thread), signal.SIGSTOP)  # fails for one that ended
    return seen, stopped


def _has_stopped(thread: str) -> bool:
    """Whether a thread can do nothing until it is continued.

    Uninterruptible sleep (D) does not count, since it may be in a read(), except in vfork(): the thread
    waits there as long as its stopped child does.
    """
    try:
        state = read_quickly(f"{thread}/stat").rpartition(b") ")[2][:1]
        return state in _STOPPED or (
            state == b"D" and read_quickly(f"{thread}/syscall").split(b" ")[0] in _FORKS
        )
    except PermissionError:
        return False
    except _ENDED:
        return True
