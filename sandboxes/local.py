"""The `local` backend: a process of its own, with limits, but no isolation.

What it gives: an own session (which no job can leave) and process group (which only a build can), a
scrubbed environment (no API keys), rlimits, a memory watchdog, a wall-clock kill of the whole tree, a
private scratch directory, and, when liftbench runs as root, an unprivileged user of its own for every
process.

What it does NOT protect: the network stays open; every file that the user may read can be read
(without root: your own files, including keys on disk); other processes of the same user can be
signalled and traced; disk use is bounded per file only. Use it for projects you trust.
Invariant: kill() ends the session, and as root also every process of the job's user; so does our own
end, however it comes (minder.py).
"""

from __future__ import annotations

import base64
import json
import os
import sys
import sysconfig
import tempfile
from pathlib import Path

from harness.errors import SandboxError
from sandboxes.escapes import refusing
from sandboxes.host_cage import CHANNEL_NUMBER, INSIDE, HostCage, Start
from sandboxes.job import Job
from sandboxes.users import FreeUsers


def interpreter_directories() -> list[Path]:
    """Directories that this Python needs to start and import: prefixes and site-packages."""
    paths = {Path(sys.prefix), Path(sys.base_prefix), Path(sysconfig.get_paths()["purelib"])}
    resolved = {p.resolve() for p in paths}
    return sorted(p for p in resolved if not any(q in p.parents for q in resolved))


def environment_of(job: Job, scratch: str) -> dict[str, str]:
    """A scrubbed environment and the job's own variables; never ours."""
    base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": scratch, "TMPDIR": scratch, "LANG": "C.UTF-8"}
    return base | dict(job.environment)


def refused_escapes(job: Job) -> tuple[str, ...]:
    """System calls by which a process would leave what is killed and frozen as one.

    A session is killed; a process group is frozen. Ninja gives every compiler a group of its own.
    """
    return ("setsid",) if job.role == "build" else ("setsid", "setpgid", "sched_setaffinity")


class LocalBackend:
    """Starts jobs as ordinary processes; see the module docstring for what that means."""

    name = "local"

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

    def cage(self, job: Job) -> HostCage:
        """Raises SandboxError when scratch space or the process cannot be made."""
        uid = self._users.take()
        try:
            folder = Path(tempfile.mkdtemp(prefix="liftbench-"))
            scratch = folder / "scratch"
            scratch.mkdir(mode=0o700)
            if uid is not None:
                folder.chmod(0o711)
                os.chown(scratch, uid, uid)  # other jobs are other users
        except OSError as error:
            raise SandboxError(f"local sandbox: no scratch directory: {error}") from error
        limits, memory = job.limits, job.limits.memory_bytes
        spec = {
            "channel": CHANNEL_NUMBER,
            "scratch": str(scratch),
            "environment": environment_of(job, str(scratch)),
            "limits": {
                "cpu_s": None if limits.cpu_s is None else int(limits.cpu_s) + 1,
                "file_bytes": limits.file_bytes,
                # A backstop: reservations are not use, so the watchdog carries the real limit.
                "address_bytes": None if memory is None or job.device else 2 * memory + (16 << 30),
                # Counted per user: only meaningful for a user that nobody else is.
                "processes": limits.processes if uid is not None else None,
            },
            "landlock": None,
            "seccomp": base64.b64encode(refusing(refused_escapes(job), os.uname().machine)).decode(),
            "die_with_parent": True,
            "preload": list(job.preload),
            "site": [str(path) for path in job.site],
        }
        return HostCage(
            Start(
                command=[sys.executable, "-I", "-S", str(INSIDE), json.dumps(spec)],
                folder=folder,
                outside={
                    "readable": [str(p) for p in [*interpreter_directories(), INSIDE, *job.readable]],
                    "cpus": sorted(job.cpus) if job.cpus else None,
                },
                uid=uid,
            )
        )
