"""The `bubblewrap` backend: namespaces by bwrap, as root or as a plain user, without a daemon.

bwrap's process 1 runs as the job's user, but attacking it gains nothing: it has an empty environment and the
same seccomp profile, and where the kernel has Landlock its memory cannot be written.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Final

from harness.errors import SandboxError
from sandboxes import host_job
from sandboxes.cgroups import Cgroups
from sandboxes.gpu import HostGpu, gpu_of
from sandboxes.host_process import INSIDE, HostProcess, SpawnSpec
from sandboxes.inside import landlock_version
from sandboxes.job import Job
from sandboxes.mounts import View, view_for
from sandboxes.scratch import remove_tree
from sandboxes.seccomp import ruleset_filter

_SCRATCH: Final = "/scratch"
_SCRIPT: Final = "/liftbench/inside.py"
_SHARED_BYTES: Final = 64 << 20  # Docker's default for /dev/shm
_TEMPORARY_BYTES: Final = 16 << 20
_NOBODY: Final = "65534"
_PASSWD: Final = "job:x:65534:65534::/scratch:/bin/sh\n"
_GROUP: Final = "job:x:65534:\n"
# No --new-session: the job already has its own session, and freezing by signal needs one process group.
_NAMESPACES: Final = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
    *("--unshare-cgroup-try", "--disable-userns", "--die-with-parent", "--cap-drop", "ALL"),
    *("--uid", _NOBODY, "--gid", _NOBODY, "--hostname", "liftbench"),
)
_PRESSURE: Final = "/proc/pressure"  # any user may set triggers, which a kernel thread evaluates
_IN_MEMORY: Final = ("/tmp", "/dev/shm")  # bwrap cannot limit the number of files there
# The watchdog cannot see a shared mapping of /dev/zero. /dev/full reads alike and cannot be mapped.
_NO_ZERO: Final = ("--dev-bind", "/dev/full", "/dev/zero")
# A process under Landlock cannot trace or write the memory of one that is not; everything else is allowed.
_EVERYTHING: Final = (("write", "/", ("",)),)
_RENAMES_SINCE: Final = 2  # earlier versions forbid moving files between directories
_BWRAP_S: Final = 20.0
# Kernel settings for user namespaces of plain users: file, value that forbids them, advice.
_SWITCHES: Final = (
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "an AppArmor profile for bwrap, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)


class BubblewrapBackend(host_job.HostBackend):
    name = "bubblewrap"

    def __init__(self, program: str = "bwrap") -> None:
        """Raises SandboxError, with advice, where it cannot work."""
        found = shutil.which(program)
        if found is None:
            raise SandboxError("bwrap is not installed: apt-get install bubblewrap")
        _check_works(found)
        self._program = found
        self._groups = Cgroups.find()
        self._users = host_job.FreeUsers()

    def facts(self) -> dict[str, str]:
        groups = self._groups
        found = {
            "bubblewrap": _version(self._program),
            "user": "unprivileged, one per job"
            if os.geteuid() == 0
            else "same as the judge, mapped to nobody",
            "network": "none",
            "files": "read-only list, scratch in memory",
            "processes": "own",
            "user namespaces inside": "disabled",
            "limits": "control groups" if groups else "rlimits, memory watchdog, wall clock",
        }
        return found | (groups.facts() if groups else {})

    def spawn(self, job: Job) -> HostProcess:
        gpu = gpu_of(job)
        view = view_for(job, gpu.libraries)
        uid = self._users.take()
        folder = host_job.new_folder(uid)
        with ExitStack() as held:
            held.callback(remove_tree, folder)
            counted = self._groups is not None
            sockets = counted or bool(gpu.nodes)
            filter_file = _in_memory(
                host_job.profile_for(job, sockets=sockets, counted=counted, rulesets=True)
            )
            held.callback(os.close, filter_file)
            argv = [self._program, *_NAMESPACES, "--seccomp", str(filter_file)]
            argv += _mounts(view, gpu, folder)
            if uid is not None:  # outside.py has mounted it, since bwrap cannot limit the number of files
                argv += ["--bind", str(folder / "scratch"), _SCRATCH]
            else:
                argv += ["--size", str(job.limits.scratch_bytes), "--perms", "0700", "--tmpfs", _SCRATCH]
            argv += () if sockets else _NO_ZERO
            # Not by bwrap's own environment: a setuid bwrap drops such variables.
            argv += [word for name, value in gpu.loader.items() for word in ("--setenv", name, value)]
            argv += ["--remount-ro", "/", "--", sys.executable, "-I", "-S", _SCRIPT]
            spec = host_job.spec_for(
                job,
                scratch=_SCRATCH,
                variables=gpu.environment,
                # bwrap installs the profile, which its process 1 needs too.
                seccomp=ruleset_filter(os.uname().machine),
                reaps=False,
                caps_memory=counted,
                counted=_IN_MEMORY,
                processes=job.limits.processes,  # counted in the user namespace
                die_with_parent=False,  # --die-with-parent covers process 1, and the kernel the rest
                landlock=_EVERYTHING if landlock_version() >= _RENAMES_SINCE else None,
            )
            process = HostProcess(
                SpawnSpec(
                    job,
                    command=[*argv, spec],
                    folder=folder,
                    readable=[*view.shown, INSIDE, folder],
                    uid=uid,
                    cgroup=host_job.group_for(job, self._groups, scratch_counts=True),
                    descriptors=[filter_file],
                    in_bwrap=True,
                )
            )
            held.pop_all()
        os.close(filter_file)
        return process


def _check_works(program: str) -> None:
    """Raises SandboxError, with advice, where bwrap cannot make its namespaces."""
    if os.geteuid() == 0 and not host_job.can_change_users(host_job.SYS_ADMIN):
        raise SandboxError(
            "root lacks its capabilities here (in a container): run liftbench as a plain user, or use"
            " --sandbox landlock"
        )
    user = 65534 if os.geteuid() == 0 else None
    try:
        done = subprocess.run(
            [program, *_NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"],
            env={"PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_BWRAP_S,
            check=False,
            user=user,
            group=user,
            extra_groups=None if user is None else (),
            cwd="/",
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError(f"{program} could not be started: {error}") from error
    if done.returncode != 0:
        raise SandboxError(f"{_advice()} ({done.stderr.strip()})")


@cache
def _version(program: str) -> str:
    printed = subprocess.run(
        [program, "--version"], env={}, capture_output=True, text=True, timeout=_BWRAP_S, check=False
    ).stdout
    found = re.search(r"\d+(\.\d+)+", printed)
    return found[0] if found else "unknown"


def _advice() -> str:
    for file, forbids, advice in _SWITCHES:
        path = Path(file)
        if path.exists() and path.read_text().strip() == forbids:
            return f"this kernel forbids user namespaces: as root, {advice}"
    return (
        "bwrap (0.8 or newer) cannot create its namespaces here; in a container, start it with --security-opt"
        " seccomp=unconfined --security-opt systempaths=unconfined, or use --sandbox landlock"
    )


def _mounts(view: View, gpu: HostGpu, folder: Path) -> Iterator[str]:
    """The visible files of the host, and empty directories that programs expect."""
    for link, target in view.links:
        yield from ("--symlink", target, str(link))
    # Before paths that a job may read below it.
    yield from ("--size", str(_TEMPORARY_BYTES), "--perms", "0700", "--tmpfs", "/tmp")
    covered = []
    for path, shown in view.in_order():
        if shown:
            yield from ("--ro-bind", str(path.resolve()), str(path))
        elif path.is_dir():
            yield from ("--perms", "0755", "--tmpfs", str(path))
            covered.append(str(path))
        else:
            yield from ("--ro-bind", "/dev/null", str(path))
    yield from ("--proc", "/proc")
    if Path(_PRESSURE).exists():
        yield from ("--tmpfs", _PRESSURE)
        covered.append(_PRESSURE)
    yield from ("--dev", "/dev")
    for node in gpu.nodes:
        yield from ("--dev-bind", str(node), str(node))
    yield from ("--size", str(_SHARED_BYTES), "--perms", "0700", "--tmpfs", "/dev/shm")
    for name, text in (("passwd", _PASSWD), ("group", _GROUP)):
        file = folder / name
        file.write_text(text)
        file.chmod(0o644)
        yield from ("--ro-bind", str(file), f"/etc/{name}")
    yield from ("--ro-bind", str(INSIDE), _SCRIPT)
    for place in (*covered, "/dev"):
        yield from ("--remount-ro", place)


def _in_memory(data: bytes) -> int:
    descriptor = os.memfd_create("seccomp")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
