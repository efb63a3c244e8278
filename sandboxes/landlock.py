"""The `landlock` backend: restrictions that a process puts on itself, for use inside a container.

It needs no right, no namespace and no program: only a kernel with Landlock (5.13). Meant for a container
that is thrown away anyway, such as a Kubernetes pod, in which bubblewrap cannot make namespaces.

What it gives: nothing of the file system but what host_files.py lists and a scratch directory; no socket
(with a GPU, unix sockets only: CUDA needs them) and, by our seccomp profile, no call into the rarer parts
of the kernel; from Linux 6.12 no signals to others, and as root a user of its own for every job.

What it does NOT hide: that files exist (names and sizes by stat), process ids, memory that others share by
name. There is no limit on the scratch directory as a whole, and without a control group memory is watched,
not limited. With a GPU, a unix socket that can be reached can be connected to: Landlock does not see them.
It refuses to start where the kernel has no Landlock.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.errors import SandboxError
from sandboxes.cgroups import Cgroups
from sandboxes.host_job import HostGpu, environment_of, gpu_of, group_for, new_folder, profile_for, spec_for
from sandboxes.host_process import INSIDE, HostProcess, Start
from sandboxes.inside import landlock_version
from sandboxes.job import Job
from sandboxes.mounts import View, view_for
from sandboxes.process import remove_tree
from sandboxes.users import CHOWN, KILL, SETGID, SETUID, FreeUsers, may, threads_of

_SIGNALS_SINCE: Final = 6
_DEVICES: Final = ("null", "full", "random", "urandom")
# The process itself, and what glibc, torch and CUDA ask about the machine; not the list of processes.
_PROC: Final = ("self", "cpuinfo", "meminfo", "stat", "filesystems", "driver/nvidia", "sys/vm")


class LandlockBackend:
    """See the module docstring."""

    name = "landlock"
    python = Path(sys.executable)
    image = None

    def __init__(self, groups: Cgroups | None = None) -> None:
        """`groups`: default is to look for them."""
        self._groups = groups or Cgroups.find()
        self._users = FreeUsers()

    def unavailable(self) -> str | None:
        """Why it cannot work here, and what to do; None if it can."""
        if landlock_version() > 0:
            return None
        return (
            "this kernel has no Landlock: it takes Linux 5.13 or newer with `landlock` in the boot option"
            " lsm=, and a container whose seccomp profile knows its calls"
        )

    def facts(self) -> dict[str, str]:
        """What protects and what does not, for the record."""
        version = landlock_version()
        root = os.geteuid() == 0 and may(CHOWN, KILL, SETGID, SETUID)
        found = {
            "landlock": f"ABI {version}",
            "user": "unprivileged, one per job" if root else "same as the judge",
            "network": "no sockets; with a GPU, unix sockets",
            "files": "read-only list; names and sizes of others visible",
            "signals to others": "none" if root or version >= _SIGNALS_SINCE else "open: needs ABI 6",
            "limits": "control groups" if self._groups else "rlimits, memory watchdog, wall clock",
        }
        return found | (self._groups.facts() if self._groups else {})

    def close(self) -> None:
        """Nothing is held."""

    def spawn(self, job: Job) -> HostProcess:
        """Raises SandboxError when it cannot work here, or the job's folder cannot be made."""
        reason = self.unavailable()
        if reason is not None:
            raise SandboxError(f"sandbox landlock: {reason}")
        gpu = gpu_of(job)
        view = view_for(job, gpu.libraries)
        uid = self._users.take()
        folder = new_folder(uid)
        scratch = str(folder / "scratch")
        try:
            spec = spec_for(
                job,
                scratch=scratch,
                environment=environment_of(job, scratch, gpu),
                seccomp=profile_for(job, sockets=bool(gpu.nodes), counted=self._groups is not None),
                caps_memory=self._groups is not None,
                # A user that others are too: what they run now is counted with it.
                processes=job.limits.processes + (threads_of(os.getuid()) if uid is None else 0),
                landlock=list(_rules(view, gpu, scratch, zero=self._groups is not None)),
            )
            start = Start(
                command=[sys.executable, "-I", "-S", str(INSIDE), spec],
                folder=folder,
                outside={
                    "readable": [str(path) for path in [*view.shown, INSIDE, folder / "scratch"]],
                    "cpus": sorted(job.cpus) if job.cpus else None,
                },
                uid=uid,
                memory_bytes=job.limits.memory_bytes,
                leaves_group=job.role == "build",
                cgroup=group_for(job, self._groups, scratch_counts=False),
            )
        except BaseException:
            remove_tree(folder)
            raise
        return HostProcess(start)


def _rules(view: View, gpu: HostGpu, scratch: str, zero: bool) -> Iterator[tuple[str, str, list[str]]]:
    """For inside.py: a right, a directory, and the names in it that have the right.

    `zero`: /dev/zero, a shared mapping of which is memory that no watchdog sees.
    """
    names: dict[str, list[str]] = {}
    for path, whole in view.granted():
        if whole:
            names.setdefault(str(path.parent), []).append(path.name)
        else:
            yield "list", str(path), [""]
    for directory, inner in names.items():
        yield "read", directory, inner
    yield "read", "/proc", [name for name in _PROC if name == "self" or Path("/proc", name).exists()]
    yield "write", scratch, [""]
    yield "device", "/dev", [*_DEVICES, *(["zero"] if zero or gpu.nodes else [])]
    if gpu.nodes:
        yield "device", "/", [str(node).lstrip("/") for node in gpu.nodes]
        yield "device", "/proc/self", ["task"]  # cuInit names its threads there
