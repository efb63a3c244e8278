"""The `landlock` backend: restrictions that a process puts on itself.

It needs no privilege, namespace or program. Meant for disposable containers, such as Kubernetes pods, in
which bubblewrap cannot create namespaces.

Not hidden: that files exist (names and sizes by stat), process ids, and memory that others share by name. The
scratch directory as a whole has no limit, and without a control group memory is polled, not limited. With a
GPU, which needs unix sockets, any reachable one can be connected to.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.errors import SandboxError
from sandboxes import host_job
from sandboxes.cgroups import Cgroups
from sandboxes.gpu import HostGpu, gpu_of
from sandboxes.host_process import HostProcess
from sandboxes.inside import landlock_version
from sandboxes.job import Job
from sandboxes.mounts import View, view_for

_SIGNALS_SINCE: Final = 6
_DEVICES: Final = ("null", "full", "random", "urandom")
# The process itself, and what glibc and torch query about the machine; not the list of processes.
_PROC: Final = ("self", "cpuinfo", "meminfo", "stat", "filesystems", "sys/vm")
# libcuda looks up here which modules of the driver are loaded, their device numbers and their settings.
_PROC_WITH_GPU: Final = ("devices", "modules", "version", "driver/nvidia*")


class LandlockBackend(host_job.HostBackend):
    name = "landlock"

    def __init__(self) -> None:
        """Raises SandboxError, with advice, where it cannot work."""
        if landlock_version() < 1:
            raise SandboxError(
                "this kernel has no Landlock: it takes Linux 5.13 or newer with `landlock` in the boot option"
                " lsm=, and a container whose seccomp profile allows its calls"
            )
        self._groups = Cgroups.find()
        self._users = host_job.FreeUsers()

    def facts(self) -> dict[str, str]:
        version = landlock_version()
        root = os.geteuid() == 0 and host_job.can_change_users()
        found = {
            "landlock": f"ABI {version}",
            "user": "unprivileged, one per job" if root else "same as the judge",
            "network": "no sockets; with a GPU, unix sockets",
            "files": "read-only list; names and sizes of others visible",
            "signals to others": "none" if root or version >= _SIGNALS_SINCE else "open: needs ABI 6",
            "limits": "control groups" if self._groups else "rlimits, memory watchdog, wall clock",
        }
        return found | (self._groups.facts() if self._groups else {})

    def spawn(self, job: Job) -> HostProcess:
        gpu = gpu_of(job)
        view = view_for(job, gpu.libraries)
        uid, counted = self._users.take(), self._groups is not None

        def spec(scratch: str) -> str:
            return host_job.spec_for(
                job,
                scratch=scratch,
                variables=gpu.environment,
                seccomp=host_job.profile_for(job, sockets=bool(gpu.nodes), counted=counted),
                caps_memory=counted,
                # Without its own user, our own threads are counted too.
                processes=job.limits.processes + (host_job.threads_of(os.getuid()) if uid is None else 0),
                landlock=list(_rules(view, gpu, scratch, zero=counted)),
            )

        return host_job.start_inside(job, uid, view.shown, spec, self._groups, gpu.loader)


def _rules(view: View, gpu: HostGpu, scratch: str, zero: bool) -> Iterator[tuple[str, str, list[str]]]:
    """Landlock rules for inside.py: a right, a directory, and the names in it that have the right.

    `zero`: allow /dev/zero, a shared mapping of which is memory that the watchdog cannot see.
    """
    names: dict[str, list[str]] = {}
    for path, whole in view.granted():
        if whole:
            names.setdefault(str(path.parent), []).append(path.name)
        else:
            yield "list", str(path), [""]
    for directory, inner in names.items():
        yield "read", directory, inner
    found = [name for name in _PROC if name == "self" or Path("/proc", name).exists()]
    for pattern in _PROC_WITH_GPU if gpu.nodes else ():
        found += [str(path.relative_to("/proc")) for path in Path("/proc").glob(pattern)]
    yield "read", "/proc", found
    yield "write", scratch, [""]
    yield "device", "/dev", [*_DEVICES, *(["zero"] if zero or gpu.nodes else [])]
    if gpu.nodes:
        yield "device", "/", [str(node).lstrip("/") for node in gpu.nodes]
        yield "device", "/proc/self", ["task"]  # cuInit names its threads there
