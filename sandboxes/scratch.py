"""Copies files into a scratch directory, and out of one that untrusted code has written.

The directory is addressed by a descriptor. Only regular files with one link are read, never through a link.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

MAX_FILES: Final = 128
MAX_BYTES: Final = 256 << 20
_MAX_DEPTH: Final = 32
_CHUNK: Final = 1 << 20
_MAX_PATH: Final = 2048  # half of PATH_MAX: the destination has a path too
# A plain user must open directories that the job has closed before removing their contents.
_REMOVE: Final = 'rm -rf -- "$1" || { find "$1" -type d -exec chmod u+rwx {} \\;; rm -rf -- "$1"; }'


class CollectError(Exception):
    """The directory exceeds the limits of what may be copied out of it."""


def fill(scratch: int, inputs: Mapping[str, Path]) -> None:
    """Copy our files and directories to names in the open directory, for its owner. Raises OSError.

    Call it before any student file is there: paths are followed.
    """
    root, owner = Path(f"/proc/self/fd/{scratch}"), os.fstat(scratch).st_uid
    for name, source in inputs.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
    for path in root.rglob("*"):
        os.chown(path, owner, owner if owner != os.geteuid() else -1)
        path.chmod(0o700 if path.stat().st_mode & stat.S_IXUSR else 0o600)


def collect_files(scratch: int, allow: Iterable[str], destination: Path) -> list[Path]:
    """Copy files whose relative path matches a pattern of `allow`; returns the copies, sorted.

    Raises CollectError above MAX_FILES files or MAX_BYTES bytes.
    """
    patterns = list(allow)
    copies: list[Path] = []
    total = 0
    try:
        root = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=scratch)
    except PermissionError as error:  # the job may have closed its own directory
        raise CollectError(f"the scratch directory is closed: {error}") from error
    try:
        for relative, descriptor in _regular_files(root, ""):
            with os.fdopen(descriptor, "rb") as source:
                if not any(fnmatch.fnmatchcase(relative, p) for p in patterns):
                    continue
                if len(os.fsencode(relative)) > _MAX_PATH:
                    raise CollectError(f"a path of more than {_MAX_PATH} bytes is to be collected")
                target = destination / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as sink:
                    while chunk := source.read(_CHUNK):
                        total += len(chunk)
                        if total > MAX_BYTES:
                            raise CollectError(f"more than {MAX_BYTES} bytes to collect")
                        sink.write(chunk)
            copies.append(target)
            if len(copies) > MAX_FILES:
                raise CollectError(f"more than {MAX_FILES} files to collect")
    finally:
        os.close(root)
    return sorted(copies)


def _regular_files(directory: int, prefix: str, depth: int = 0) -> Iterable[tuple[str, int]]:
    """Yields (relative path, open descriptor) of regular files; the caller closes the descriptor."""
    if depth > _MAX_DEPTH:
        raise CollectError(f"directories are nested more than {_MAX_DEPTH} deep")
    for name in sorted(os.listdir(directory)):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=directory)
        except OSError:
            continue  # a link, a socket, or unreadable
        facts = os.fstat(descriptor)
        if stat.S_ISDIR(facts.st_mode):
            try:
                yield from _regular_files(descriptor, f"{prefix}{name}/", depth + 1)
            finally:
                os.close(descriptor)
        elif stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1:
            yield f"{prefix}{name}", descriptor
        else:
            os.close(descriptor)


def remove_tree(directory: Path) -> None:
    """Remove a job's folder of any size and depth, without following links.

    Returns after a second at most; a thread removes the rest, or remove_orphans() if this process ends.
    """
    removal = threading.Thread(target=_remove, args=(directory,), daemon=True)
    removal.start()
    removal.join(1.0)


def _remove(directory: Path) -> None:
    with suppress(RecursionError):
        shutil.rmtree(directory, ignore_errors=True)
    if not os.path.lexists(directory):
        return
    subprocess.run(  # nested too deep, or closed by the job
        ["/bin/sh", "-c", _REMOVE, "sh", str(directory)],
        env={"PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,
        check=False,
    )
