"""Runs before the sandbox, as a child of the harness: joins control groups, mounts, and changes the user.

On any failure it exits with one line on stderr and starts nothing. Standard library only: it runs as a
script.

Usage: python -I -S outside.py SPEC_JSON, with
  argv       what to become, with an empty environment
  cgroups    files to write its own process id to
  cpus       cores to be pinned to, or None
  uid        user to become, or None
  readable   directories that this user must be able to reach
  staging    an empty directory for mount points
  scratch    [directory, bytes, inodes] to cover by a file system of that size, or None
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

_CLONE_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV = 2, 4
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def blocked_ancestor(path: Path) -> Path | None:
    """The outermost directory above `path` that other users may not enter."""
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


def expose(paths: list[Path], staging: Path, libc: ctypes.CDLL) -> None:
    """Make `paths` reachable for any user below a closed directory such as /root.

    The closed directory is covered by one that holds only bind mounts of `paths`. Needs a mount namespace.
    """
    hidden: dict[Path, list[Path]] = {}
    for path in paths:
        blocker = blocked_ancestor(path)
        if blocker is not None:
            hidden.setdefault(blocker, []).append(path)
    for number, (blocker, wanted) in enumerate(hidden.items()):
        held: list[tuple[Path, Path]] = []
        for index, path in enumerate(wanted):
            place = staging / f"{number}-{index}"
            _bind(libc, path, place)
            held.append((place, path))
        _mount(libc, "tmpfs", blocker, "tmpfs", 0, "mode=755,size=1m")
        for place, path in held:
            _bind(libc, place, path)


def _bind(libc: ctypes.CDLL, source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    _mount(libc, str(source), target, "", _MS_BIND | _MS_REC)


def mount_all(spec: dict[str, Any], libc: ctypes.CDLL) -> None:
    readable = [Path(p) for p in spec["readable"]]
    closed = next((place for path in readable if (place := blocked_ancestor(path))), None)
    if spec["scratch"] is None and closed is None:
        return
    reason = f", since {closed} is closed to other users" if closed else ""
    _check(libc.unshare(_CLONE_NEWNS), f"make a mount namespace{reason}")
    _mount(libc, "none", Path("/"), "", _MS_REC | _MS_PRIVATE)
    if spec["scratch"] is not None:
        directory, size, inodes = spec["scratch"]
        options = f"mode=700,size={size},nr_inodes={inodes},uid={spec['uid']},gid={spec['uid']}"
        _mount(libc, "tmpfs", Path(directory), "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    expose(readable, Path(spec["staging"]), libc)


def prepare(spec: dict[str, Any]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for file in spec["cgroups"]:
        Path(file).write_text(str(os.getpid()))
    if spec["cpus"]:
        os.sched_setaffinity(0, spec["cpus"])
    if spec["uid"] is not None:
        mount_all(spec, libc)
        os.setgroups([])
        os.setresgid(spec["uid"], spec["uid"], spec["uid"])
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    _check(libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0), "pdeathsig")


def main() -> None:
    try:
        spec = json.loads(sys.argv[1])
        prepare(spec)
        os.chdir("/")
        argv = spec["argv"]
        if argv[:3] != [sys.executable, "-I", "-S"]:
            os.execve(argv[0], argv, {})
        code = compile(Path(argv[3]).read_bytes(), argv[3], "exec")
    except (OSError, ValueError) as error:
        os.write(2, f"outside.py: {error}\n".encode())
        os._exit(1)
    # Stay in this interpreter, which has the same switches: another start costs 20 ms.
    sys.argv[:] = argv[3:]
    exec(code, {"__name__": "__main__"})


if __name__ == "__main__":
    main()
