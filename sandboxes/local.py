"""The `local` backend: a process with limits, without isolation.

Every job gets its own session (which it cannot leave) and process group (which only a build can leave), a
scrubbed environment, rlimits, a memory watchdog, a wall-clock limit on the whole tree, a private scratch
directory and, when liftbench runs as root, its own unprivileged user.

Not protected: the network is open; every file that the user may read can be read (without root: your own
files, keys on disk included); processes of the same user can be signalled and traced; disk use is limited by
file only. Use it for projects that you trust.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from sandboxes.gpu import gpu_of
from sandboxes.host_job import FreeUsers, HostBackend, spec_for, start_inside
from sandboxes.host_process import HostProcess
from sandboxes.job import Job
from sandboxes.seccomp import job_filter


class LocalBackend(HostBackend):
    name = "local"

    def __init__(self) -> None:
        self._users = FreeUsers()

    def facts(self) -> dict[str, str]:
        return {
            "user": "unprivileged, one per process" if os.geteuid() == 0 else "same as the judge",
            "network": "open",
            "files": "not isolated",
            "limits": "rlimits, memory watchdog, wall clock",
        }

    def spawn(self, job: Job) -> HostProcess:
        uid, gpu = self._users.take(), gpu_of(job, closed=False)

        def spec(scratch: str) -> str:
            return spec_for(
                job,
                scratch=scratch,
                variables=gpu.environment,
                seccomp=job_filter(job, os.uname().machine),
                caps_memory=False,
                processes=job.limits.processes if uid is not None else None,
            )

        # What this Python needs to start and import: prefixes and site-packages.
        python = (sys.prefix, sys.base_prefix, sysconfig.get_paths()["purelib"])
        found = {Path(path).resolve() for path in python}
        outermost = sorted(path for path in found if found.isdisjoint(path.parents))
        return start_inside(job, uid, [*outermost, *job.readable, *job.site], spec, loader=gpu.loader)
