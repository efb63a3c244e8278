"""Puts files into a scratch directory, and takes files out of it that untrusted code has written.

Only regular, singly linked files below the directory are read, never through a link, and never more than
the caps. It is known by a descriptor: its path may mean something else to us.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

MAX_FILES = 128
MAX_BYTES = 256 << 20
_MAX_DEPTH = 32
_CHUNK = 1 << 20
_LONGEST = 2048  # half of what Linux takes (PATH_MAX): the destination has a path too


class CollectError(Exception):
    """The directory holds more than may be taken out of it."""


def _regular_files(directory: int, prefix: str, depth: int = 0) -> Iterable[tuple[str, int]]:
    """Yields (relative path, open descriptor) of regular files; the caller closes the descriptor."""
    if depth > _MAX_DEPTH:
        raise CollectError(f"directories are nested more than {_MAX_DEPTH} deep")
    for name in sorted(os.listdir(directory)):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=directory)
        except OSError:
            continue  # A link, a socket, or unreadable: not ours to take.
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


def fill(scratch: int, inputs: Mapping[str, Path]) -> None:
    """Copy each file or directory of `inputs` (our own) to its name in the open, still empty directory.

    What is copied belongs to the directory's owner. Raises OSError.
    """
    owner = os.fstat(scratch).st_uid
    for name, source in inputs.items():
        *parents, last = Path(name).parts
        place = os.dup(scratch)
        try:
            for parent in parents:
                inner = _directory(place, parent, owner)
                os.close(place)
                place = inner
            _copy(source, place, last, owner)
        finally:
            os.close(place)


def _directory(place: int, name: str, owner: int) -> int:
    """Make a directory where there is none, and open it."""
    try:
        os.mkdir(name, 0o700, dir_fd=place)
    except FileExistsError:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
    made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
    _give(made, owner)
    return made


def _copy(source: Path, place: int, name: str, owner: int) -> None:
    if source.is_dir():
        inner = _directory(place, name, owner)
        try:
            for entry in sorted(source.iterdir()):
                _copy(entry, inner, entry.name, owner)
        finally:
            os.close(inner)
        return
    with source.open("rb") as data:
        mode = 0o700 if os.fstat(data.fileno()).st_mode & stat.S_IXUSR else 0o600
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=place)
        with os.fdopen(descriptor, "wb") as sink:
            shutil.copyfileobj(data, sink, _CHUNK)
            _give(sink.fileno(), owner)


def _give(descriptor: int, owner: int) -> None:
    if owner != os.geteuid():
        os.chown(descriptor, owner, owner)


def collect_files(scratch: int, allow: Iterable[str], destination: Path) -> list[Path]:
    """Copy files of the open directory whose relative path matches a pattern of `allow` to `destination`.

    Returns the copies, sorted. Raises CollectError above MAX_FILES files or MAX_BYTES bytes.
    """
    patterns = list(allow)
    copies: list[Path] = []
    total = 0
    try:
        root = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=scratch)
    except PermissionError as error:  # a job may close its own directory, to a plain user also for us
        raise CollectError(f"the scratch directory is closed: {error}") from error
    try:
        for relative, descriptor in _regular_files(root, ""):
            with os.fdopen(descriptor, "rb") as source:
                if not any(fnmatch.fnmatchcase(relative, p) for p in patterns):
                    continue
                if len(os.fsencode(relative)) > _LONGEST:
                    raise CollectError(f"a path of more than {_LONGEST} bytes is to be collected")
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
