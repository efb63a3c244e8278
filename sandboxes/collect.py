"""Takes files out of a directory that untrusted code has written to.

Owns: the only way in which bytes leave a scratch directory. Does not own: what they mean.
Invariant: only regular, singly linked files below the directory are read, never through a link,
and never more than the caps.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterable
from pathlib import Path

MAX_FILES = 128
MAX_BYTES = 256 << 20
_MAX_DEPTH = 32
_CHUNK = 1 << 20


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


def collect_files(scratch: Path, allow: Iterable[str], destination: Path) -> list[Path]:
    """Copy files whose relative path matches a pattern of `allow` to `destination`.

    Returns the copies, sorted. Raises CollectError above MAX_FILES files or MAX_BYTES bytes.
    """
    patterns = list(allow)
    copies: list[Path] = []
    total = 0
    root = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for relative, descriptor in _regular_files(root, ""):
            with os.fdopen(descriptor, "rb") as source:
                if not any(fnmatch.fnmatchcase(relative, p) for p in patterns):
                    continue
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
