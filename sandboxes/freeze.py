"""Stops every thread of a process group and waits until each one really stands.

After stand_still() has said True, no thread of the group runs user code or is inside a system call that
could still write: a call that was in progress has ended, its time is on the caller's clock.

The kernel wakes one thread of a process for a group's SIGSTOP, by preference the first, and only that one
stops the others. Where it waits in vfork() or is in a long system call they would run on (tried: for
ever, and 0.8 s while the first thread had 3 GB of memory filled). So each thread is told by itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Final

from sandboxes.seccomp import numbers

_LIBC: Final = ctypes.CDLL(None)
_NUMBERS: Final = numbers(os.uname().machine)
_TGKILL: Final = _NUMBERS["tgkill"]
_STANDING: Final = frozenset(b"TtZX")
"""proc(5): stopped, stopped by a tracer, and ended twice over."""
_FORKS: Final = frozenset(_NUMBERS[name] for name in ("clone", "vfork") if name in _NUMBERS)
_BUSY_S: Final = 0.0002
_PAUSE_S: Final = 0.0001
_ENDED: Final = (FileNotFoundError, ProcessLookupError)


def stand_still(members: Callable[[], Iterable[int]], group: int, within_s: float) -> bool:
    """Stop all threads of the processes that `members` tells and that are in the process group `group`.

    The group was sent SIGSTOP already. Returns whether all stood within `within_s`. Two looks in a row
    must find the same threads: what an ending process leaves changes its parent, and a list of processes
    that is read meanwhile may miss it.
    """
    began, before = time.monotonic(), None
    while True:
        seen, standing = _look(members(), group)
        if standing and seen == before:
            return True
        before = seen
        took = time.monotonic() - began
        if took > within_s:
            return False
        # At first the core is kept: to sleep costs more than most threads need, and to offer it more than
        # that (sched_yield gives whoever wants it a slice of 1.5 ms and more).
        if not standing and took > _BUSY_S:
            time.sleep(_PAUSE_S)


def _look(processes: Iterable[int], group: int) -> tuple[set[int], bool]:
    """The threads there are, and whether all stand; those that do not are told (once more)."""
    seen: set[int] = set()
    standing = True
    for pid in processes:
        try:
            threads = os.listdir(f"/proc/{pid}/task") if os.getpgid(pid) == group else []  # noqa: PTH208
        except _ENDED:
            continue
        for thread in threads:
            seen.add(int(thread))
            if not _stands(f"/proc/{pid}/task/{thread}"):
                standing = False
                _LIBC.syscall(_TGKILL, pid, int(thread), signal.SIGSTOP)  # fails for one that ended
    return seen, standing


def _stands(thread: str) -> bool:
    """Whether a thread can do nothing before it is told to go on.

    One that sleeps uninterruptibly (D) may be in the middle of a read() and does not count, with one
    exception: who waits in vfork() for a child of his stays so for as long as that child stands.
    """
    try:
        state = _content(f"{thread}/stat").rpartition(b") ")[2][:1]
        if state == b"D":
            return _waits_for_child(thread)
    except _ENDED:
        return True
    return state[0] in _STANDING if state else True


def _waits_for_child(thread: str) -> bool:
    """Whether the system call that it is in makes a process. Where we may not know: no."""
    try:
        number = _content(f"{thread}/syscall").split()[:1]
    except PermissionError:
        return False
    return bool(number) and number[0].isdigit() and int(number[0]) in _FORKS


def _content(path: str) -> bytes:
    """The first bytes of a small file, at a third of what a file object costs."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 512)
    finally:
        os.close(descriptor)
