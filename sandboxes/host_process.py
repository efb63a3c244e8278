"""A cage around a child process of ours: what `local`, `landlock` and `bubblewrap` have in common.

After kill() nothing of the tree runs: by cgroup where there is one, else by session (which nobody may
leave, see `setsid`), and as root also by user.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.errors import SandboxError
from sandboxes.freeze import stand_still
from sandboxes.job import STOP_S, TreeExit, UnstoppableError, Usage
from sandboxes.process import remove_tree
from sandboxes.reaper import Reaper
from sandboxes.users import kill_session, kill_user

if TYPE_CHECKING:
    from sandboxes.cgroups import Cgroup

_OUTSIDE: Final = Path(__file__).with_name("outside.py")
INSIDE: Final = Path(__file__).with_name("inside.py")
_WORDS_BYTES: Final = 1 << 14
_OWN: Final = ("VmPTE:", "HugetlbPages:")
CHANNEL_NUMBER: Final = "{channel-number}"
"""In the command: becomes the number of the inherited socket."""
REAPER: Final = Reaper()
"""One for all sandboxes of this process: it knows nothing but what runs."""


@dataclass(frozen=True)
class Start:
    """How to start one child."""

    command: Sequence[str]
    """What to become at last: inside.py, or what starts it. CHANNEL_NUMBER in any word is replaced."""
    folder: Path
    """Ours, for this job only; removed at the end."""
    outside: dict[str, Any] = field(default_factory=dict)
    """For outside.py: readable, staging, scratch, cpus."""
    uid: int | None = None
    """The user to become; None to stay the same."""
    cgroup: Cgroup | None = None
    descriptors: Sequence[int] = ()
    """To be inherited beside the channel."""
    inside_signals: bool = True
    """The child's exit status is the job's own; False where a monitor reports 128 + signal."""
    caps_scratch: bool = False
    memory_bytes: int | None = None
    """The limit that is watched where no cgroup holds it."""
    leaves_group: bool = False
    """Its processes may leave its process group: only a control group freezes all of them."""


class HostProcess:
    """A child process and all that comes from it."""

    channel: socket.socket

    def __init__(self, start: Start) -> None:
        """Raises SandboxError; the folder is removed then."""
        self._start = start
        self._released = False
        self._lock = threading.Lock()
        self._ended: TreeExit | None = None
        self.caps_memory = start.cgroup is not None
        self.caps_scratch = start.caps_scratch
        try:
            self._spawn()
        except OSError as error:
            self._tidy()
            raise SandboxError(f"a sandbox could not start a process: {error}") from error

    def _spawn(self) -> None:
        start = self._start
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._words, words_end = os.pipe()
        number = str(theirs.fileno())
        spec = {
            "readable": [],
            "staging": str(start.folder / "mounts"),
            "scratch": None,
            "cpus": None,
            **start.outside,
            "argv": [word.replace(CHANNEL_NUMBER, number) for word in start.command],
            "cgroups": [str(f) for f in start.cgroup.join_files()] if start.cgroup else [],
            "uid": start.uid,
        }
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_OUTSIDE), json.dumps(spec)],
                env={},
                stdin=subprocess.DEVNULL,
                stdout=words_end,
                stderr=words_end,
                pass_fds=(theirs.fileno(), *start.descriptors),
                start_new_session=True,
                cwd="/",
            )
        except BaseException:
            self.channel.close()
            os.close(self._words)
            raise
        finally:
            theirs.close()
            os.close(words_end)
        REAPER.watch(self._popen.pid, start.uid, start.folder)

    # --- the cage ------------------------------------------------------------------------------

    def wait(self) -> TreeExit:
        """Block until the first process has ended, and end the others."""
        _, status, usage = os.wait4(self._popen.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._popen.returncode = code  # Popen must not wait for it again.
        self.kill()
        number = -code if code < 0 else None
        if not self._start.inside_signals and _is_signal(code - 128):
            number = code - 128
        group = self._start.cgroup
        peak = group.peak_memory_bytes() if group else None
        cpu_s = group.cpu_s() if group else None
        self._ended = TreeExit(
            code=None if number else code,
            signal=number,
            oom=bool(group and group.oom_kills() and group.reached_its_limit()),
            # Without a group the watchdog's figure stands: ru_maxrss begins at the size of this process.
            peak_memory_bytes=peak,
            cpu_s=usage.ru_utime + usage.ru_stime if cpu_s is None else cpu_s,
        )
        return self._ended

    def kill(self) -> None:
        """End the group, the session, and as root every process of the job's user."""
        with self._lock:
            if self._released:
                return
            if self._start.cgroup is not None:
                self._start.cgroup.kill()
            if self._ended is None:
                self._signal_group(signal.SIGKILL)
            kill_session(self._popen.pid)
            if self._start.uid is not None:
                kill_user(self._start.uid)

    def freeze(self, frozen: bool) -> None:
        """By signal to the process group, since that is faster, where no process can leave it.

        Raises UnstoppableError.
        """
        if self._start.leaves_group and self._start.cgroup is not None:
            self._start.cgroup.freeze(frozen)
            return
        pid, group = self._popen.pid, self._start.cgroup
        self._signal_group(signal.SIGSTOP if frozen else signal.SIGCONT)
        # Without a control group an orphan is found too: it becomes a child of the first process, which
        # is told to be its reaper (inside.py). To look through the session takes 1.5 ms.
        members = group.members if group is not None else lambda: _tree(pid)
        if frozen and not stand_still(members, pid, STOP_S):
            raise UnstoppableError(f"some thread did not stop within {STOP_S:.0f} s")

    def _signal_group(self, number: int) -> None:
        try:
            os.killpg(self._popen.pid, number)
        except (ProcessLookupError, PermissionError):
            return  # Already gone.

    def usage(self) -> Usage:
        """Of the cgroup, else what the tree has in memory and swap, page tables included.

        That counts a page for every process that has it. Only where it is over the limit is each page
        divided among those that share it, which takes a hundred times as long.
        """
        group = self._start.cgroup
        if group is not None:
            return Usage(group.memory_bytes(), group.cpu_s())
        tree = list(_tree(self._popen.pid))
        resident, most = sum(_resident_bytes(pid) for pid in tree), self._start.memory_bytes
        if most is None or resident <= most:
            return Usage(resident)
        return Usage(sum(_proportional_bytes(pid) for pid in tree))

    def members(self) -> list[int]:
        """Its processes now."""
        group = self._start.cgroup
        return list(_tree(self._popen.pid)) if group is None else group.members()

    def words(self) -> str:
        """What it printed before it was ready."""
        if self._released or not select.select([self._words], [], [], 1.0)[0]:
            return ""
        return os.read(self._words, _WORDS_BYTES).decode(errors="replace").strip()

    def release(self) -> None:
        """Remove the group and the folder."""
        with self._lock:
            if self._released:
                return
            self._released = True
        os.close(self._words)
        self._tidy()
        REAPER.forget(self._popen.pid)

    def _tidy(self) -> None:
        if self._start.cgroup is not None:
            self._start.cgroup.remove()
        remove_tree(self._start.folder)


def _is_signal(number: int) -> bool:
    return 0 < number <= signal.NSIG


def _tree(root: int) -> Iterator[int]:
    """Process ids of `root` and its descendants, as far as /proc shows them."""
    pending = [root]
    while pending:
        pid = pending.pop()
        yield pid
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - on the way of the judge's clock
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as children:  # noqa: PTH123
                    pending.extend(int(word) for word in children.read().split())
        except OSError:
            continue


def _proportional_bytes(pid: int) -> int:
    """As /proc tells it (Pss), or the resident bytes where it does not."""
    shared = _bytes_of(pid, "smaps_rollup", "Pss:", "SwapPss:")
    if shared is None:
        return _resident_bytes(pid)
    return shared + (_bytes_of(pid, "status", *_OWN) or 0)


def _resident_bytes(pid: int) -> int:
    """What it has in memory, in swap, and in page tables (which cost as much as pages that are only read)."""
    return _bytes_of(pid, "status", "VmRSS:", "VmSwap:", *_OWN) or 0


def _bytes_of(pid: int, file: str, *names: str) -> int | None:
    """The sum of what a file of /proc tells in kB; None where it cannot be read."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(names))
