"""What a job is given on this host: a user, a folder, a control group, an environment, its spec."""

from __future__ import annotations

import base64
import itertools
import json
import os
import pwd
import random
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from harness.errors import SandboxError
from sandboxes.cgroups import Cgroup, Cgroups
from sandboxes.gpu import checked_environment
from sandboxes.host_process import CHANNEL_NUMBER, INSIDE, HostProcess, SpawnSpec
from sandboxes.job import Job
from sandboxes.orphans import owned_prefix
from sandboxes.reaper import processes, stat_of
from sandboxes.scratch import remove_tree
from sandboxes.seccomp import compile_filter, job_filter, profile, without_hidden_memory

_ADDRESS_SLACK_BYTES: Final = 16 << 30
_UIDS: Final = range(20_000, 60_000)  # below 65536: a user namespace may map no more
CHOWN, KILL, SETGID, SETUID, SYS_ADMIN = 0, 5, 6, 7, 21  # linux/capability.h


class HostBackend:
    """What the backends have in common whose jobs are processes of this host."""

    python = Path(sys.executable)
    image = None

    def close(self) -> None:
        """Nothing is held."""


class FreeUsers:
    def __init__(self) -> None:
        self._numbers = itertools.count(random.SystemRandom().randrange(len(_UIDS)))
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """An id without account and processes; None where this process may not change users."""
        if os.geteuid() != 0 or not can_change_users():
            return None
        with self._lock:
            busy = {uid for _, uid in processes()}
            for number in itertools.islice(self._numbers, len(_UIDS)):
                uid = _UIDS[number % len(_UIDS)]
                if uid not in busy and not _has_account(uid):
                    return uid
        raise SandboxError(f"no user id in {_UIDS} is free")


def can_change_users(*more: int) -> bool:
    """Whether this process can start and kill processes of other users, and has the capabilities `more`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            held = int(line.split()[1], 16)
            return all(held >> number & 1 for number in (CHOWN, KILL, SETGID, SETUID, *more))
    return False


def _has_account(uid: int) -> bool:
    try:
        return bool(pwd.getpwuid(uid))
    except KeyError:
        return False


def threads_of(uid: int) -> int:
    """How many threads `uid` runs now, as RLIMIT_NPROC counts them."""
    counts = [stat_of(pid)[17:18] for pid, owner in processes() if owner == uid]
    return sum(int(number) for found in counts for number in found)


def profile_for(job: Job, *, sockets: bool, counted: bool, rulesets: bool = False) -> bytes:
    """The job's filter followed by our profile, for this machine. Raises SandboxError.

    `counted`: a control group counts all memory, so that none is hidden; CUDA needs hidden memory too.
    `rulesets`: Landlock rulesets are still to be made after it.
    """
    machine, hidden = os.uname().machine, counted or job.device is not None
    return job_filter(job, machine, _program(machine, sockets, hidden, rulesets))


@cache
def _program(machine: str, sockets: bool, hidden: bool, rulesets: bool) -> bytes:
    found = profile() if hidden else without_hidden_memory(profile())
    gone = () if rulesets else ("landlock_create_ruleset",)
    return compile_filter(found, machine, sockets=sockets, also_refuse=gone)


def new_folder(uid: int | None) -> Path:
    """A folder for one job, with a `scratch` directory that belongs to `uid`. Raises SandboxError."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=owned_prefix("job")))
    except OSError as error:
        raise SandboxError(f"no folder for a job: {error}; is the disk full?") from error
    try:
        (folder / "scratch").mkdir(mode=0o700)
        if uid is not None:
            folder.chmod(0o711)
            os.chown(folder / "scratch", uid, uid)
    except OSError as error:
        remove_tree(folder)
        raise SandboxError(f"no folder for a job: {error}") from error
    return folder


def group_for(job: Job, groups: Cgroups | None, *, scratch_counts: bool) -> Cgroup | None:
    """A control group with the job's limits (`scratch_counts`: and scratch). Raises SandboxError."""
    if groups is None:
        return None
    limits, memory = job.limits, job.limits.memory_bytes
    if memory is not None and scratch_counts:
        memory += limits.scratch_bytes
    name = owned_prefix("job") + secrets.token_hex(6)
    return groups.create(name, memory_bytes=memory, processes=limits.processes)


def spec_for(
    job: Job,
    *,
    scratch: str,
    variables: Mapping[str, str],
    seccomp: bytes,
    caps_memory: bool,
    processes: int | None,
    channel: str = CHANNEL_NUMBER,
    die_with_parent: bool = True,
    landlock: Sequence[Any] | None = None,
    counted: Sequence[str] = (),
    reaps: bool = True,
) -> str:
    """The argument of inside.py. Raises SandboxError.

    `variables`: further ones of its environment. `counted`: other directories in memory whose files count
    as scratch. `reaps`: it becomes the subreaper of orphans. `processes`: RLIMIT_NPROC, which counts all
    processes of the user.
    """
    limits, memory = job.limits, job.limits.memory_bytes
    # Scrubbed, with the job's own variables.
    base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": scratch, "TMPDIR": scratch, "LANG": "C.UTF-8"}
    # A backstop for the watchdog. CUDA reserves far more than it uses: 280 GiB for one pool on an H200.
    backstop = None if memory is None or job.device or caps_memory else 2 * memory + _ADDRESS_SLACK_BYTES
    return json.dumps(
        {
            "channel": channel,
            "scratch": scratch,
            "environment": base | checked_environment(job.environment) | dict(variables),
            "limits": {
                "cpu_s": None if limits.cpu_s is None else int(limits.cpu_s) + 1,
                "file_bytes": limits.file_bytes,
                "address_bytes": backstop,
                "processes": processes,
            },
            "landlock": landlock,
            "counted": list(counted),
            "seccomp": base64.b64encode(seccomp).decode(),
            "reaps": reaps,
            "die_with_parent": die_with_parent,
            "preload": list(job.preload),
            "site": [str(path) for path in job.site],
        }
    )


def start_inside(
    job: Job,
    uid: int | None,
    readable: Iterable[Path],
    spec: Callable[[str], str],
    groups: Cgroups | None = None,
    loader: Mapping[str, str] | None = None,
) -> HostProcess:
    """Start inside.py, which restricts itself, without another program around it. Raises SandboxError.

    `spec` makes its argument from the path of the scratch directory; `loader`: see HostGpu.
    """
    folder = new_folder(uid)
    try:
        command = [sys.executable, "-I", "-S", str(INSIDE), spec(str(folder / "scratch"))]
        cgroup = group_for(job, groups, scratch_counts=False)
    except BaseException:
        remove_tree(folder)
        raise
    shown = [*readable, INSIDE, folder / "scratch"]
    return HostProcess(SpawnSpec(job, command, folder, shown, uid, cgroup, loader=loader or {}))
