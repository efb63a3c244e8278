"""Folders of ours that cannot be written to: full, gone, or read-only.

An error rarely names the folder (a write to a full disk has no path), so the folders themselves are tried.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import StorageError

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSED: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ENOENT, errno.ESTALE})
_TRIED_BYTES: Final = 16 << 20
"""Less than one build or worker may need."""


@dataclass(frozen=True)
class Place:
    """A folder that we write to."""

    folder: Path
    what: str
    """Is in it."""
    advice: str


def temporary_files() -> Place:
    """Where builds and jobs have their folders."""
    return Place(
        Path(tempfile.gettempdir()), "temporary files", "make room there, or set TMPDIR to another folder"
    )


def builds(cache: Path) -> Place:
    """The cache."""
    return Place(cache, "builds", "make room there, or name another folder with --cache")


def finished_trials(run: Path) -> Place:
    """A run's folder."""
    return Place(run, "the run", "make room there; finished trials are kept, and the same command goes on")


def is_storage(error: BaseException) -> bool:
    """Whether it says that a disk is full, or was raised because of that."""
    return any(one.errno in FULL for one in _os_errors(error))


def storage_error(error: BaseException, places: Iterable[Place]) -> StorageError | None:
    """What `error` means where one of `places` cannot be written to now; None where all can, or where it did
    not come from the system."""
    if isinstance(error, StorageError):
        return error
    if next(_os_errors(error), None) is None:
        return None
    for place in places:
        trouble = _trouble(place.folder)
        if trouble is not None:
            return StorageError(f"{place.folder} ({place.what}) {trouble}: {place.advice}")
    return None


@contextmanager
def watching(*places: Place) -> Iterator[None]:
    """Raises StorageError for what comes of a folder that cannot be written to, other errors as they are."""
    try:
        yield
    except Exception as error:
        found = storage_error(error, places)
        if found is None or found is error:
            raise
        raise found from error


def _os_errors(error: BaseException | None) -> Iterator[OSError]:
    while error is not None:
        if isinstance(error, OSError):
            yield error
        error = error.__cause__


def _trouble(folder: Path) -> str | None:
    """Why nothing of some size can be written there."""
    if not folder.is_dir():
        return "is not there any more"
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, _TRIED_BYTES)
    except OSError as error:
        if error.errno in FULL:
            return f"is full ({shutil.disk_usage(folder).free >> 20} MiB are free)"
        if error.errno in _REFUSED:
            return f"cannot be written to ({error.strerror})"
    return None
