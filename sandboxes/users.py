"""A user of its own for every process that root starts.

An id that has an account or a living process is never chosen, so that killing by user never meets a
stranger.
"""

from __future__ import annotations

import itertools
import os
import pwd
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from harness.errors import SandboxError

_RANGE = range(20_000, 60_000)  # below 65536: a user namespace may map no more
_SWEEPS = 5
CHOWN, KILL, SETGID, SETUID, SYS_ADMIN = 0, 5, 6, 7, 21  # linux/capability.h


class FreeUsers:
    """Hands out user ids, none twice in a row of 40,000."""

    def __init__(self) -> None:
        self._numbers = itertools.count(random.SystemRandom().randrange(len(_RANGE)))
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """A user that nobody is; None when we cannot become one: without root, or root without its powers."""
        if os.geteuid() != 0 or not may(CHOWN, KILL, SETGID, SETUID):
            return None
        with self._lock:
            busy = {uid for _, uid in _processes()}
            for number in itertools.islice(self._numbers, len(_RANGE)):
                uid = _RANGE[number % len(_RANGE)]
                if uid not in busy and not _has_account(uid):
                    return uid
        raise SandboxError(f"no user id in {_RANGE} is free")


def may(*capabilities: int) -> bool:
    """Whether we have all of them: a container's root may have none."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            held = int(line.split()[1], 16)
            return all(held >> number & 1 for number in capabilities)
    return False


def threads_of(uid: int) -> int:
    """How many threads `uid` runs now, as the kernel counts them for a limit on processes."""
    total = 0
    for pid, owner in _processes():
        if owner == uid:
            with suppress(OSError):  # it ended
                total += int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[17])
    return total


def kill_user(uid: int) -> None:
    """Kill every process of `uid`, again until nobody is left who could have forked meanwhile."""
    for _ in range(_SWEEPS):
        if not sum(_kill(pid) for pid, owner in _processes() if owner == uid):
            return


def kill_session(session: int) -> None:
    """Kill every process of a session of ours, again until nobody is left who could have forked meanwhile."""
    for _ in range(_SWEEPS):
        if not sum(_kill(pid) for pid, _ in _processes() if _session(pid) == session):
            return


def kill_home(home: Path) -> None:
    """Kill every process whose home is the directory of one job.

    As root, with all others of its user, who is that job's alone.
    """
    for _ in range(_SWEEPS):
        found = dict(_living_in(home))
        for uid in set(found.values()) - {os.geteuid()}:
            kill_user(uid)
        if not sum(_kill(pid) for pid in found):
            return


def _living_in(home: Path) -> Iterator[tuple[int, int]]:
    """The processes that were started with this home, and their users."""
    wanted = b"\0HOME=" + os.fsencode(home) + b"\0"
    for pid, uid in _processes():
        with suppress(OSError):  # it ended, or is somebody else's
            if wanted in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
                yield pid, uid


def _session(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return None  # It ended.


def _kill(pid: int) -> bool:
    """Kill it; whether it was alive."""
    try:
        os.kill(pid, signal.SIGKILL)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False  # It ended by itself.
    return state not in "ZX"


def _processes() -> Iterator[tuple[int, int]]:
    """(process id, user id) of all that /proc shows."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                yield int(entry.name), entry.stat().st_uid
        except OSError:
            continue  # It ended.


def _has_account(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
