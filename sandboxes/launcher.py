"""Runs first in a local sandbox's child: sets limits, drops the user, then becomes the job.

Owns: what a process does to itself before untrusted bytes run. Standard library only.
Does not own: starting, watching and killing (local.py). Invariant: on any failure it exits with
LAUNCH_FAILED and one line on stderr, and never runs the job with fewer restrictions than asked for.

Usage: python -I -S launcher.py SPEC_JSON
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import struct
import sys
from pathlib import Path
from typing import Any

LAUNCH_FAILED = 97
_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SIGKILL = 9
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
# By machine: the kernel's audit number, and the system calls setpgid, setsid and sched_setaffinity.
_ESCAPES = {
    "x86_64": (0xC000003E, (109, 112, 203)),
    "aarch64": (0xC00000B7, (154, 157, 122)),
}


def blocked_ancestor(path: Path) -> Path | None:
    """The outermost directory above `path` that other users may not enter, if there is one."""
    for ancestor in [*reversed(path.parents), path]:
        if ancestor.is_dir() and not ancestor.stat().st_mode & 0o001:
            return ancestor
    return None


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(libc: ctypes.CDLL, source: str, target: Path, kind: str, flags: int, data: str = "") -> None:
    result = libc.mount(
        source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _check(result, f"mount {source} on {target}")


def expose(paths: list[Path], staging: Path) -> None:
    """Make `paths` readable for any user where a closed directory (such as /root) stands above them.

    In a mount namespace of our own the closed directory is covered by an empty one that holds only
    bind mounts of the wanted paths, so nothing else of it can be seen.
    """
    hidden: dict[Path, list[Path]] = {}
    for path in paths:
        blocker = blocked_ancestor(path)
        if blocker is not None:
            hidden.setdefault(blocker, []).append(path)
    if not hidden:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_CLONE_NEWNS), "unshare the mount namespace")
    _mount(libc, "none", Path("/"), "", _MS_REC | _MS_PRIVATE)
    for number, (blocker, wanted) in enumerate(hidden.items()):
        held: list[tuple[Path, Path]] = []
        for index, path in enumerate(wanted):
            place = staging / f"{number}-{index}"
            place.mkdir(parents=True)
            _mount(libc, str(path), place, "", _MS_BIND | _MS_REC)
            held.append((place, path))
        _mount(libc, "tmpfs", blocker, "tmpfs", 0, "mode=755,size=1m")
        for place, path in held:
            path.mkdir(parents=True, exist_ok=True)
            _mount(libc, str(place), path, "", _MS_BIND | _MS_REC)


def _limit(kind: int, value: int | None, grace: int = 0) -> None:
    """`grace`: how far the hard limit lies above the one that only sends a signal."""
    if value is None:
        return
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    most = value + grace if hard == resource.RLIM_INFINITY else min(value + grace, hard)
    resource.setrlimit(kind, (value, most))


def _filter(machine: str) -> bytes:
    """A seccomp program (struct sock_filter, 8 bytes each) that refuses the calls in _ESCAPES."""
    if machine not in _ESCAPES:
        raise OSError(f"no system call numbers are known for {machine}")
    audit, numbers = _ESCAPES[machine]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    kill, refuse, allow = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000
    program = [
        (load, 0, 0, 4),  # seccomp_data.arch: calls of another ABI have other numbers
        (equal, 1, 0, audit),
        (answer, 0, 0, kill),
        (load, 0, 0, 0),  # seccomp_data.nr
        (at_least, 0, 1, 0x40000000),  # x32
        (answer, 0, 0, kill),
    ]
    for number in numbers:
        program += [(equal, 0, 1, number), (answer, 0, 0, refuse)]
    program.append((answer, 0, 0, allow))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def hold_group(libc: ctypes.CDLL) -> None:
    """Nothing of the job may leave its process group or its cores.

    Freezing and killing go to the group: a child with a session of its own would run on while the
    judge takes its snapshot, or while another contender is timed. Needs no_new_privs.
    """
    program = _filter(os.uname().machine)
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _check(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, head, 0, 0), "seccomp")


def restrict(spec: dict[str, Any]) -> None:
    """Apply limits, drop the user where one is given, and forbid new privileges."""
    if spec["cpus"]:
        os.sched_setaffinity(0, spec["cpus"])
    if spec["uid"] is not None:
        expose([Path(p) for p in spec["readable"]], Path(spec["staging"]))
        os.setgroups([])
        os.setresgid(spec["uid"], spec["uid"], spec["uid"])
    _limit(resource.RLIMIT_CPU, spec["cpu_s"], grace=1)  # else it is SIGKILL, which says nothing
    _limit(resource.RLIMIT_FSIZE, spec["file_bytes"])
    _limit(resource.RLIMIT_AS, spec["address_bytes"])
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, 1024)
    if spec["uid"] is not None:
        # Counted per user: only meaningful for a user that nobody else is.
        _limit(resource.RLIMIT_NPROC, spec["processes"])
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    # After the change of user, which clears it.
    _check(libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0), "pdeathsig")
    os.umask(0o077)
    if spec["hold_group"]:
        hold_group(libc)


def main() -> None:
    """Restrict, then become the job."""
    try:
        spec = json.loads(sys.argv[1])
        restrict(spec)
        os.chdir(spec["scratch"])
        os.execve(spec["argv"][0], spec["argv"], spec["environment"])
    except OSError as error:
        os.write(2, f"launcher: {error}\n".encode())
        os._exit(LAUNCH_FAILED)


if __name__ == "__main__":
    main()
