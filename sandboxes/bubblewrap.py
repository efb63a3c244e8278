"""The `bubblewrap` backend: namespaces of its own, by bwrap, as root and as a plain user, without a daemon.

What it gives: user, process, network, IPC, host name and mount namespaces; a root file system that is
read-only and holds what host_files.py lists; a scratch directory in memory with a size; our seccomp
profile; no capabilities; as root a user of its own for every job. Control groups where they can be made,
else rlimits and a memory watchdog.

What a job can do with bwrap's process 1, which runs as its own user, helps it nowhere: that has an empty
environment and the same seccomp profile, and where the kernel has Landlock its memory cannot be written.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import SandboxError
from sandboxes.cgroups import Cgroups
from sandboxes.escapes import refusing_rulesets
from sandboxes.host_job import HostGpu, environment_of, gpu_of, group_for, new_folder, profile_for, spec_for
from sandboxes.host_process import INSIDE, HostProcess, Start
from sandboxes.inside import landlock_version
from sandboxes.job import Job
from sandboxes.mounts import View, view_for
from sandboxes.process import remove_tree
from sandboxes.users import CHOWN, KILL, SETGID, SETUID, SYS_ADMIN, FreeUsers, may

_SCRATCH: Final = "/scratch"
_SCRIPT: Final = "/liftbench/inside.py"
_SHARED_BYTES: Final = 64 << 20  # Docker's default for /dev/shm
_TEMPORARY_BYTES: Final = 16 << 20
_NOBODY: Final = "65534"
_PASSWD: Final = "job:x:65534:65534::/scratch:/bin/sh\n"
_GROUP: Final = "job:x:65534:\n"
# No --new-session: the job is in a session of its own already, without a terminal, and freezing without
# control groups needs one process group.
_NAMESPACES: Final = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
    *("--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL"),
    *("--uid", _NOBODY, "--gid", _NOBODY, "--hostname", "liftbench"),
)
_NEW_PROC: Final = ("--proc", "/proc")
_OLD_PROC: Final = ("--ro-bind", "/proc", "/proc")
_PRESSURE: Final = "/proc/pressure"  # any user may set triggers, which a kernel thread works on
_IN_MEMORY: Final = ("/tmp", "/dev/shm")  # bwrap cannot limit the number of files there
# A shared mapping of /dev/zero is memory that no watchdog sees. /dev/full reads alike, and cannot be mapped.
_NO_ZERO: Final = ("--dev-bind", "/dev/full", "/dev/zero")
_NO_MORE_USERNS: Final = ("--disable-userns",)
# A process under Landlock cannot trace, nor write the memory of, one that is not; nothing else is taken away.
_EVERYTHING: Final = (("write", "/", ("",)),)
_RENAMES_SINCE: Final = 2  # before, Landlock forbids to move files between directories
_TRIAL_S: Final = 20.0
_COUNTED_SINCE: Final = (5, 14)  # RLIMIT_NPROC by user namespace, not over the whole machine
# Where the kernel says whether a plain user may make a user namespace, the value that forbids it, and advice.
_SWITCHES: Final = (
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=15000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "an AppArmor profile for bwrap, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)


@dataclass(frozen=True)
class _Ways:
    """What of bwrap works here."""

    program: str
    version: str
    proc: tuple[str, ...]
    no_more_userns: tuple[str, ...]


class BubblewrapBackend:
    """See the module docstring."""

    name = "bubblewrap"
    python = Path(sys.executable)
    image = None

    def __init__(self, program: str | None = None, groups: Cgroups | None = None) -> None:
        """`program`: bwrap itself (default: from PATH); `groups`: default is to look for them."""
        self._program = program
        self._groups = groups or Cgroups.find()
        self._users = FreeUsers()
        self._found: _Ways | str | None = None

    def unavailable(self) -> str | None:
        """Why it cannot work here, and what to do; None if it can."""
        found = self._ways()
        return found if isinstance(found, str) else None

    def facts(self) -> dict[str, str]:
        """What protects and what does not, for the record. Raises SandboxError where it cannot work."""
        ways = self._working()
        groups = self._groups
        found = {
            "bubblewrap": ways.version,
            "user": "unprivileged, one per job"
            if os.geteuid() == 0
            else "same as the judge, mapped to nobody",
            "network": "none",
            "files": "read-only list, scratch in memory",
            "processes": "own" if ways.proc == _NEW_PROC else "own, names of others visible in /proc",
            "its process 1": "out of reach" if landlock_version() >= _RENAMES_SINCE else "within reach",
            "user namespaces inside": "disabled" if ways.no_more_userns else "refused by seccomp",
            "limits": "control groups" if groups else "rlimits, memory watchdog, wall clock",
        }
        return found | (groups.facts() if groups else {})

    def close(self) -> None:
        """Nothing is held."""

    def spawn(self, job: Job) -> HostProcess:
        """Raises SandboxError when it cannot work here, or the job's folder cannot be made."""
        ways, gpu = self._working(), gpu_of(job)
        view = view_for(job, gpu.libraries)
        uid = self._users.take()
        folder = new_folder(uid)
        with ExitStack() as held:
            held.callback(remove_tree, folder)
            counted = self._groups is not None
            sockets = counted or bool(gpu.nodes)
            filter_file = _in_memory(profile_for(job, sockets=sockets, counted=counted, rulesets=True))
            held.callback(os.close, filter_file)
            argv = [ways.program, *_NAMESPACES, *ways.no_more_userns, "--seccomp", str(filter_file)]
            argv += [*_mounts(ways, view, gpu, folder), *_scratch_mount(job, folder, uid)]
            argv += () if sockets else _NO_ZERO
            argv += ["--remount-ro", "/", "--", sys.executable, "-I", "-S", _SCRIPT]
            spec = spec_for(
                job,
                scratch=_SCRATCH,
                environment=environment_of(job, _SCRATCH, gpu),
                # bwrap installs the rest, which its process 1 needs too.
                seccomp=refusing_rulesets(os.uname().machine),
                reaps=False,
                caps_memory=counted,
                counted=_IN_MEMORY,
                processes=job.limits.processes if uid is not None or _counts_by_namespace() else None,
                die_with_parent=False,  # process 1 sees to it, and the kernel to process 1
                landlock=_EVERYTHING if landlock_version() >= _RENAMES_SINCE else None,
            )
            start = Start(
                command=[*argv, spec],
                folder=folder,
                outside={
                    "readable": [str(path) for path in [*view.shown, INSIDE, folder]],
                    "cpus": sorted(job.cpus) if job.cpus else None,
                    "scratch": None if uid is None else _sized(folder, job),
                },
                uid=uid,
                memory_bytes=job.limits.memory_bytes,
                leaves_group=job.role == "build",
                cgroup=group_for(job, self._groups, scratch_counts=True),
                descriptors=[filter_file],
                inside_signals=False,
                caps_scratch=True,
            )
            cage = HostProcess(start)
            held.pop_all()
        os.close(filter_file)
        return cage

    # --- whether it works ----------------------------------------------------------------------

    def _working(self) -> _Ways:
        found = self._ways()
        if isinstance(found, str):
            raise SandboxError(f"sandbox bubblewrap: {found}")
        return found

    def _ways(self) -> _Ways | str:
        if self._found is None and os.geteuid() == 0 and not may(CHOWN, KILL, SETGID, SETUID, SYS_ADMIN):
            self._found = (
                "root has not its powers here (a container's): run liftbench as a plain user, or use"
                " --sandbox landlock"
            )
        elif self._found is None:
            self._found = _tried(self._program or shutil.which("bwrap"))
        return self._found


def _tried(program: str | None) -> _Ways | str:
    """The strictest way that works, or why none does."""
    if program is None:
        return "bwrap is not installed: apt-get install bubblewrap"
    told = ""
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
                    timeout=_TRIAL_S,
                    check=False,
                    user=user,
                    group=user,
                    extra_groups=None if user is None else (),
                    cwd="/",
                )
            except (OSError, subprocess.SubprocessError) as error:
                return f"{program} could not be started: {error}"
            if done.returncode == 0:
                return _Ways(program, _version(program), proc, no_more)
            told = told or done.stderr.strip()
    return f"{_advice()} ({told})"


def _version(program: str) -> str:
    told = subprocess.run(
        [program, "--version"], env={}, capture_output=True, text=True, timeout=_TRIAL_S, check=False
    ).stdout
    found = re.search(r"\d+(\.\d+)+", told)
    return found[0] if found else "unknown"


def _advice() -> str:
    for file, forbids, advice in _SWITCHES:
        path = Path(file)
        if path.exists() and path.read_text().strip() == forbids:
            return f"this kernel forbids user namespaces: as root, {advice}"
    return (
        "bwrap cannot make its namespaces here; in a container, start that with --security-opt"
        " seccomp=unconfined --security-opt systempaths=unconfined, or use --sandbox landlock"
    )


def _counts_by_namespace() -> bool:
    major, minor = re.match(r"(\d+)\.(\d+)", os.uname().release).groups()  # type: ignore[union-attr]
    return (int(major), int(minor)) >= _COUNTED_SINCE


# --- the command line --------------------------------------------------------------------------


def _mounts(ways: _Ways, view: View, gpu: HostGpu, folder: Path) -> Iterator[str]:
    """What the job sees of the host, and the empty places that programs expect."""
    for link, target in view.links:
        yield from ("--symlink", target, str(link))
    # For programs that know no other place; before what a job may read below it.
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
    yield from ways.proc
    if ways.proc == _NEW_PROC and Path(_PRESSURE).exists():
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


def _scratch_mount(job: Job, folder: Path, uid: int | None) -> Sequence[str]:
    """outside.py has mounted it where it can, which takes root: bwrap cannot have files counted."""
    if uid is not None:
        return ("--bind", str(folder / "scratch"), _SCRATCH)
    return ("--size", str(job.limits.scratch_bytes), "--perms", "0700", "--tmpfs", _SCRATCH)


def _sized(folder: Path, job: Job) -> list[str | int]:
    return [str(folder / "scratch"), job.limits.scratch_bytes, job.limits.scratch_files]


def _in_memory(data: bytes) -> int:
    """A descriptor from which `data` can be read."""
    descriptor = os.memfd_create("seccomp")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
