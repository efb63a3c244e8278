"""Prepares a job on this host: its folder, its control group and the spec that inside.py reads."""

from __future__ import annotations

import base64
import json
import os
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from harness.errors import SandboxError
from sandboxes.cgroups import Cgroup, Cgroups
from sandboxes.escapes import refusing_escapes
from sandboxes.gpu import (
    checked_environment,
    device_environment,
    device_nodes,
    driver_environment,
    driver_libraries,
    find_gpus,
    slot_named,
)
from sandboxes.host_process import CHANNEL_NUMBER
from sandboxes.job import Job
from sandboxes.orphans import owned_prefix
from sandboxes.process import remove_tree
from sandboxes.seccomp import compile_filter, profile, without_hidden_memory

_ADDRESS_SLACK_BYTES: Final = 16 << 30


@dataclass(frozen=True)
class HostGpu:
    """What a job with a GPU gets of this host; all empty for one without."""

    nodes: tuple[Path, ...] = ()
    libraries: tuple[Path, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


def gpu_of(job: Job) -> HostGpu:
    """The GPU that `job` names. Raises DeviceError when it is not there."""
    if job.device is None:
        return HostGpu()
    slot = slot_named(job.device, find_gpus())
    libraries = driver_libraries()
    variables = device_environment(slot) | driver_environment(libraries)
    return HostGpu(tuple(device_nodes(slot)), tuple(libraries), tuple(sorted(variables.items())))


def environment_of(job: Job, scratch: str, gpu: HostGpu | None = None) -> dict[str, str]:
    """A scrubbed environment and the job's own variables; never ours. Raises SandboxError."""
    base = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": scratch, "TMPDIR": scratch, "LANG": "C.UTF-8"}
    return base | checked_environment(job.environment) | dict(gpu.environment if gpu else ())


def profile_for(job: Job, *, sockets: bool, counted: bool, rulesets: bool = False) -> bytes:
    """Our seccomp profile for this machine, without what `job` may not do. Raises SandboxError.

    `counted`: a control group counts all memory that it takes. CUDA needs what else would be refused.
    `rulesets`: Landlock's are still to be made behind it.
    """
    machine, hidden = os.uname().machine, counted or job.device is not None
    return refusing_escapes(job, machine, _program(machine, sockets, hidden, rulesets))


@cache
def _program(machine: str, sockets: bool, hidden: bool, rulesets: bool) -> bytes:
    """Of two files of ours; compiling takes 2 ms. `hidden`: with memory that no watchdog sees."""
    found = profile() if hidden else without_hidden_memory(profile())
    gone = () if rulesets else ("landlock_create_ruleset",)
    return compile_filter(found, machine, sockets=sockets, also_refuse=gone)


def new_folder(uid: int | None, *, scratch: bool = True) -> Path:
    """A folder for one job, passable for `uid`, with a `scratch` directory of that user's.

    Raises SandboxError.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=owned_prefix("job")))
    except OSError as error:
        raise SandboxError(f"no folder for a job: {error}; is the disk full?") from error
    try:
        if uid is not None:
            folder.chmod(0o711)
        if scratch:
            (folder / "scratch").mkdir(mode=0o700)
            if uid is not None:
                os.chown(folder / "scratch", uid, uid)  # other jobs are other users
    except OSError as error:
        remove_tree(folder)
        raise SandboxError(f"no folder for a job: {error}") from error
    return folder


def group_for(job: Job, groups: Cgroups | None, *, scratch_counts: bool) -> Cgroup | None:
    """A control group with the job's limits; None where there are none. Raises SandboxError.

    `scratch_counts`: the scratch directory lies in memory, and its pages are the job's.
    """
    if groups is None:
        return None
    limits, memory = job.limits, job.limits.memory_bytes
    if memory is not None and scratch_counts:
        memory += limits.scratch_bytes
    return groups.create(secrets.token_hex(6), memory_bytes=memory, processes=limits.processes)


def spec_for(
    job: Job,
    *,
    scratch: str,
    environment: dict[str, str],
    seccomp: bytes | None,
    caps_memory: bool,
    processes: int | None,
    die_with_parent: bool = True,
    landlock: Sequence[Any] | None = None,
    counted: Sequence[str] = (),
    reaps: bool = True,
) -> str:
    """The argument of inside.py.

    `counted`: other places in memory where it can make files, which count as those in scratch.
    `reaps`: orphans become its children, by which those that are to be frozen are found.
    `processes`: the most that the job's user may run, where that says something of the job.
    """
    limits, memory = job.limits, job.limits.memory_bytes
    # A backstop for the watchdog. CUDA reserves far more than it uses: 280 GiB for one pool on an H200.
    backstop = None if memory is None or job.device or caps_memory else 2 * memory + _ADDRESS_SLACK_BYTES
    return json.dumps(
        {
            "channel": CHANNEL_NUMBER,
            "scratch": scratch,
            "environment": environment,
            "limits": {
                "cpu_s": None if limits.cpu_s is None else int(limits.cpu_s) + 1,
                "file_bytes": limits.file_bytes,
                "address_bytes": backstop,
                "processes": processes,
            },
            "landlock": landlock,
            "counted": list(counted),
            "seccomp": None if seccomp is None else base64.b64encode(seccomp).decode(),
            "reaps": reaps,
            "die_with_parent": die_with_parent,
            "preload": list(job.preload),
            "site": [str(path) for path in job.site],
        }
    )
