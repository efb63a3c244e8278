"""The process tree of a child process on this host, for the backends local, landlock and bubblewrap.

After kill() nothing of the tree runs: by control group where there is one, else by session (which a job
cannot leave, since its filter refuses setsid), and as root also by user.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.errors import SandboxError
from sandboxes.cgroups import Cgroup
from sandboxes.freeze import confirm_stopped
from sandboxes.job import Job, TreeExit, Usage
from sandboxes.reaper import REAPER, kill_session, kill_user
from sandboxes.scratch import remove_tree

_OUTSIDE: Final = Path(__file__).with_name("outside.py")
INSIDE: Final = Path(__file__).with_name("inside.py")
_STARTUP_BYTES: Final = 1 << 14
_PAGE_TABLES: Final = ("VmPTE:", "HugetlbPages:")
CHANNEL_NUMBER: Final = "{channel-number}"
"""In a command: replaced by the number of the inherited socket."""


@dataclass(frozen=True)
class SpawnSpec:
    job: Job
    command: Sequence[str]
    folder: Path
    readable: Sequence[Path]
    uid: int | None
    cgroup: Cgroup | None
    descriptors: Sequence[int] = ()
    loader: Mapping[str, str] = field(default_factory=dict)
    """Variables for the dynamic loader, which reads them only when a program starts."""
    in_bwrap: bool = False
    """Scratch is a file system of its own, and bwrap reports a signal as the exit code 128 + signal."""


class HostProcess:
    channel: socket.socket

    def __init__(self, spec: SpawnSpec) -> None:
        """Raises SandboxError; the folder is removed then."""
        self._spec = spec
        self._released = False
        self._lock = threading.Lock()
        self._exit: TreeExit | None = None
        self.caps_memory = spec.cgroup is not None
        self.caps_scratch = spec.in_bwrap
        try:
            self._spawn()
        except OSError as error:
            self._clean_up()
            raise SandboxError(f"a sandbox could not start a process: {error}") from error

    def _spawn(self) -> None:
        spec, limits = self._spec, self._spec.job.limits
        own_scratch = [str(spec.folder / "scratch"), limits.scratch_bytes, limits.scratch_files]
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._startup, startup_end = os.pipe()
        number = str(theirs.fileno())
        outside = {
            "argv": [word.replace(CHANNEL_NUMBER, number) for word in spec.command],
            "cgroups": [str(file) for file in spec.cgroup.join_files()] if spec.cgroup else [],
            "cpus": sorted(spec.job.cpus) if spec.job.cpus else None,
            "uid": spec.uid,
            "readable": [str(path) for path in spec.readable],
            "staging": str(spec.folder / "mounts"),
            # As a plain user bwrap mounts it, which cannot limit the number of files.
            "scratch": own_scratch if spec.in_bwrap and spec.uid is not None else None,
        }
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_OUTSIDE), json.dumps(outside)],
                env=dict(spec.loader),
                stdin=subprocess.DEVNULL,
                stdout=startup_end,
                stderr=startup_end,
                pass_fds=(theirs.fileno(), *spec.descriptors),
                start_new_session=True,
                cwd="/",
            )
        except BaseException:
            self.channel.close()
            os.close(self._startup)
            raise
        finally:
            theirs.close()
            os.close(startup_end)
        REAPER.watch(self._popen.pid, spec.uid, spec.folder)

    def wait(self) -> TreeExit:
        _, status, usage = os.wait4(self._popen.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._popen.returncode = code  # Popen must not wait for it again
        self.kill()
        number = -code if code < 0 else None
        if self._spec.in_bwrap and 0 < code - 128 <= signal.NSIG:
            number = code - 128
        group = self._spec.cgroup
        cpu_s = group.cpu_s() if group else None
        self._exit = TreeExit(
            code=None if number else code,
            signal=number,
            oom=bool(group and group.oom_kills() and group.reached_memory_limit()),
            # Without a group the polled peak is used: ru_maxrss starts at the size of this process.
            peak_memory_bytes=group.peak_memory_bytes() if group else None,
            cpu_s=usage.ru_utime + usage.ru_stime if cpu_s is None else cpu_s,
        )
        return self._exit

    def kill(self) -> None:
        with self._lock:
            if self._released:
                return
            if self._spec.cgroup is not None:
                self._spec.cgroup.kill()
            if self._exit is None:
                self._signal_group(signal.SIGKILL)
            kill_session(self._popen.pid)
            if self._spec.uid is not None:
                kill_user(self._spec.uid)

    def freeze(self, frozen: bool) -> float | None:
        """By signal to the process group, which takes 0.1 to 0.3 ms; control groups take 2 ms and more."""
        self._signal_group(signal.SIGSTOP if frozen else signal.SIGCONT)
        return confirm_stopped(self.members, self._popen.pid) if frozen else None

    def _signal_group(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # it has ended
            os.killpg(self._popen.pid, number)

    def usage(self) -> Usage:
        """Of the control group, else memory and swap of the tree, page tables included.

        The sum counts shared pages once per process. Only where it exceeds the limit are they divided among
        their users, which takes a hundred times as long.
        """
        group = self._spec.cgroup
        if group is not None:
            return Usage(group.memory_bytes(), group.cpu_s())
        tree = list(tree_of(self._popen.pid))
        resident, limit = sum(_resident_bytes(pid) for pid in tree), self._spec.job.limits.memory_bytes
        if limit is None or resident <= limit:
            return Usage(resident)
        return Usage(sum(_proportional_bytes(pid) for pid in tree))

    def members(self) -> list[int]:
        group = self._spec.cgroup
        # The first process is the subreaper of orphans. Looking through the whole session takes 1.5 ms.
        return list(tree_of(self._popen.pid)) if group is None else group.members()

    def startup_output(self) -> str:
        if self._released or not select.select([self._startup], [], [], 1.0)[0]:
            return ""
        return os.read(self._startup, _STARTUP_BYTES).decode(errors="replace").strip()

    def release(self) -> None:
        with self._lock:
            if self._released:
                return
            self._released = True
        os.close(self._startup)
        self._clean_up()
        REAPER.forget(self._popen.pid)

    def _clean_up(self) -> None:
        if self._spec.cgroup is not None:
            self._spec.cgroup.remove()
        remove_tree(self._spec.folder)


def tree_of(root: int) -> Iterator[int]:
    pending = [root]
    while pending:
        pid = pending.pop()
        yield pid
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - on the judge's clock
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as children:  # noqa: PTH123
                    pending.extend(int(word) for word in children.read().split())
        except OSError:
            continue


def _proportional_bytes(pid: int) -> int:
    shared = _kilobytes(pid, "smaps_rollup", "Pss:", "SwapPss:")
    return shared + _kilobytes(pid, "status", *_PAGE_TABLES) if shared else _resident_bytes(pid)


def _resident_bytes(pid: int) -> int:
    """Memory, swap and page tables (which cost as much as pages that are only read)."""
    return _kilobytes(pid, "status", "VmRSS:", "VmSwap:", *_PAGE_TABLES)


def _kilobytes(pid: int, file: str, *names: str) -> int:
    """The sum, in bytes, of fields in kB; 0 where the file cannot be read."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text(errors="replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(names))
