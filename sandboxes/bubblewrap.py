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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import SandboxError
from sandboxes import host_job
from sandboxes.cgroups import Cgroups
from sandboxes.host_job import View, view_for
from sandboxes.host_process import INSIDE, HostProcess, SpawnSpec
from sandboxes.inside import landlock_version
from sandboxes.job import Job
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
    *("--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL"),
    *("--uid", _NOBODY, "--gid", _NOBODY, "--hostname", "liftbench"),
)
_NEW_PROC: Final = ("--proc", "/proc")
_OLD_PROC: Final = ("--ro-bind", "/proc", "/proc")
_PRESSURE: Final = "/proc/pressure"  # any user may set triggers, which a kernel thread evaluates
_IN_MEMORY: Final = ("/tmp", "/dev/shm")  # bwrap cannot limit the number of files there
# The watchdog cannot see a shared mapping of /dev/zero. /dev/full reads alike and cannot be mapped.
_NO_ZERO: Final = ("--dev-bind", "/dev/full", "/dev/zero")
_NO_MORE_USERNS: Final = ("--disable-userns",)
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


@dataclass(frozen=True)
class _Bwrap:
    program: str
    version: str
    proc: tuple[str, ...]
    no_more_userns: tuple[str, ...]


class BubblewrapBackend:
    name = "bubblewrap"
    python = Path(sys.executable)
    image = None

    def __init__(self, program: str | None = None, groups: Cgroups | None = None) -> None:
        self._program = program
        self._groups = groups or Cgroups.find()
        self._users = host_job.FreeUsers()
        self._found: _Bwrap | str | None = None

    def unavailable(self) -> str | None:
        """Why it cannot work here, with advice; None if it can."""
        if self._found is None:
            self._found = _find_bwrap(self._program or shutil.which("bwrap"))
        return self._found if isinstance(self._found, str) else None

    def _bwrap(self) -> _Bwrap:
        reason = self.unavailable()
        if not isinstance(self._found, _Bwrap):
            raise SandboxError(f"sandbox bubblewrap: {reason}")
        return self._found

    def facts(self) -> dict[str, str]:
        bwrap = self._bwrap()
        groups = self._groups
        found = {
            "bubblewrap": bwrap.version,
            "user": "unprivileged, one per job"
            if os.geteuid() == 0
            else "same as the judge, mapped to nobody",
            "network": "none",
            "files": "read-only list, scratch in memory",
            "processes": "own" if bwrap.proc == _NEW_PROC else "own, names of others visible in /proc",
            "user namespaces inside": "disabled" if bwrap.no_more_userns else "refused by seccomp",
            "limits": "control groups" if groups else "rlimits, memory watchdog, wall clock",
        }
        return found | (groups.facts() if groups else {})

    def close(self) -> None:
        """Nothing is held."""

    def spawn(self, job: Job) -> HostProcess:
        bwrap, gpu = self._bwrap(), host_job.gpu_of(job)
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
            argv = [bwrap.program, *_NAMESPACES, *bwrap.no_more_userns, "--seccomp", str(filter_file)]
            argv += _mounts(bwrap, view, gpu, folder)
            if uid is not None:  # outside.py has mounted it, since bwrap cannot limit the number of files
                argv += ["--bind", str(folder / "scratch"), _SCRATCH]
            else:
                argv += ["--size", str(job.limits.scratch_bytes), "--perms", "0700", "--tmpfs", _SCRATCH]
            argv += () if sockets else _NO_ZERO
            argv += ["--remount-ro", "/", "--", sys.executable, "-I", "-S", _SCRIPT]
            spec = host_job.spec_for(
                job,
                scratch=_SCRATCH,
                environment=host_job.environment_of(job, _SCRATCH, gpu),
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
                    command=[*argv, spec],
                    folder=folder,
                    readable=[*view.shown, INSIDE, folder],
                    cpus=job.cpus,
                    uid=uid,
                    scratch=(folder / "scratch", job.limits.scratch_bytes, job.limits.scratch_files)
                    if uid is not None
                    else None,
                    memory_bytes=job.limits.memory_bytes,
                    cgroup=host_job.group_for(job, self._groups, scratch_counts=True),
                    descriptors=[filter_file],
                    reports_signals=False,
                    caps_scratch=True,
                )
            )
            held.pop_all()
        os.close(filter_file)
        return process


def _find_bwrap(program: str | None) -> _Bwrap | str:
    """bwrap with the strictest options that work, or why none do."""
    if os.geteuid() == 0 and not host_job.can_change_users(host_job.SYS_ADMIN):
        return (
            "root lacks its capabilities here (in a container): run liftbench as a plain user, or use"
            " --sandbox landlock"
        )
    if program is None:
        return "bwrap is not installed: apt-get install bubblewrap"
    message = ""
    user = 65534 if os.geteuid() == 0 else None
    for proc in (_NEW_PROC, _OLD_PROC):
        for no_more in (_NO_MORE_USERNS, ()):
            argv = [program, *_NAMESPACES, *no_more, "--ro-bind", "/", "/", *proc, "--dev", "/dev", "true"]
            try:
                done = subprocess.run(
                    argv,
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
                return f"{program} could not be started: {error}"
            if done.returncode == 0:
                return _Bwrap(program, _version(program), proc, no_more)
            message = message or done.stderr.strip()
    return f"{_advice()} ({message})"


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
        "bwrap cannot create its namespaces here; in a container, start it with --security-opt"
        " seccomp=unconfined --security-opt systempaths=unconfined, or use --sandbox landlock"
    )


# --- the command line --------------------------------------------------------------------------


def _mounts(bwrap: _Bwrap, view: View, gpu: host_job.HostGpu, folder: Path) -> Iterator[str]:
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
    yield from bwrap.proc
    if bwrap.proc == _NEW_PROC and Path(_PRESSURE).exists():
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
