"""The `local` backend: a process of its own, with limits, but no isolation.

What it gives: an own session (which no job can leave) and process group (which only a build can), a
scrubbed environment (no API keys), rlimits, a memory watchdog, a wall-clock kill of the whole tree, a
private scratch directory, and, when liftbench runs as root, an unprivileged user of its own for every
process.

What it does NOT protect: the network stays open; every file that the user may read can be read
(without root: your own files, including keys on disk); other processes of the same user can be
signalled and traced; disk use is bounded per file only. Use it for projects you trust.
Invariant: kill() ends the session, and as root also every process of the job's user; so does our own
end, however it comes (reaper.py).
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from sandboxes.escapes import refusing_escapes
from sandboxes.host_job import environment_of, new_folder, spec_for
from sandboxes.host_process import INSIDE, HostProcess, Start
from sandboxes.job import Job
from sandboxes.process import remove_tree
from sandboxes.users import FreeUsers


def interpreter_directories() -> list[Path]:
    """Directories that this Python needs to start and import: prefixes and site-packages."""
    paths = {Path(sys.prefix), Path(sys.base_prefix), Path(sysconfig.get_paths()["purelib"])}
    resolved = {p.resolve() for p in paths}
    return sorted(p for p in resolved if not any(q in p.parents for q in resolved))


class LocalBackend:
    """Starts jobs as ordinary processes; see the module docstring for what that means."""

    name = "local"
    python = Path(sys.executable)
    image = None

    def __init__(self) -> None:
        self._users = FreeUsers()

    def facts(self) -> dict[str, str]:
        """What protects: for the record."""
        return {
            "user": "unprivileged, one per process" if os.geteuid() == 0 else "same as the judge",
            "network": "open",
            "files": "not isolated",
            "limits": "rlimits, memory watchdog, wall clock",
        }

    def close(self) -> None:
        """Nothing is held."""

    def spawn(self, job: Job) -> HostProcess:
        """Raises SandboxError when scratch space or the process cannot be made."""
        uid = self._users.take()
        folder = new_folder(uid)
        scratch = str(folder / "scratch")
        try:
            spec = spec_for(
                job,
                scratch=scratch,
                environment=environment_of(job, scratch),
                seccomp=refusing_escapes(job, os.uname().machine),
                caps_memory=False,
                processes=job.limits.processes if uid is not None else None,
            )
        except BaseException:
            remove_tree(folder)
            raise
        return HostProcess(
            Start(
                command=[sys.executable, "-I", "-S", str(INSIDE), spec],
                folder=folder,
                outside={
                    "readable": [
                        str(p)
                        for p in [
                            *interpreter_directories(),
                            INSIDE,
                            folder / "scratch",
                            *job.readable,
                            *job.site,
                        ]
                    ],
                    "cpus": sorted(job.cpus) if job.cpus else None,
                },
                uid=uid,
                memory_bytes=job.limits.memory_bytes,
                leaves_group=job.role == "build",
            )
        )
