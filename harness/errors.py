"""Failures that are ours, never the student's.

LiftbenchError
 |- UsageError        the user's input cannot be used (exit code 2)
 |- BudgetSpent       a limit on tokens, dollars or calls is reached: stop, and keep what there is
 |- DownloadError     a package index could not be reached, or has not what was asked for
 |- InfraError        something of ours failed: becomes the verdict `infra` at one boundary (run.py)
     |- ProviderError   a model API failed after its retries
     |- SandboxError    a sandbox could not start, or broke a promise
     |- StorageError    a folder of ours is full, gone, or read-only
     |- DeviceError     a GPU failed
     |   |- DeviceLost    it was well before a project ran on it, and is not any more
     |- HarnessBug      we broke an invariant of our own

A bad project is no exception: it is a `Finding` (see records/project.py).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from harness.outcome import Cause

_NEAR = 0.7
_COMPARED_CHARS = 80  # difflib is quadratic
_URL = re.compile(r"(https?|git|ssh|hf|file):/+|git@[\w.-]+:")


class LiftbenchError(Exception):
    """Base of all errors that liftbench raises on purpose."""


class UsageError(LiftbenchError):
    """The user's input cannot be used; the message says what, where, and what to do next."""


class BudgetSpent(LiftbenchError):
    """A limit that the user set on tokens, dollars or calls is reached; nothing more is asked."""


class DownloadError(LiftbenchError):
    """A package index could not be reached, or has not what was asked for; nothing was changed."""


class InfraError(LiftbenchError):
    """Something of ours failed; retried, never scored."""

    cause: Cause = Cause.HARNESS_BUG


class ProviderError(InfraError):
    """A model API failed after the SDK's retries, or answered with something that is no reply."""

    cause = Cause.PROVIDER


class SandboxError(InfraError):
    """A sandbox could not start a process or keep a promise."""

    cause = Cause.SANDBOX


class StorageError(InfraError):
    """A folder of ours is full, gone, or read-only: trying again is vain before that is mended."""

    cause = Cause.STORAGE


class DeviceError(InfraError):
    """A GPU failed, or disappeared."""

    cause = Cause.DEVICE


class DeviceLost(DeviceError):
    """A device that was well before a project ran on it is not any more."""

    def __init__(self, message: str, project: str) -> None:
        """`project`: digest of the one that ran on it."""
        super().__init__(message)
        self.project = project


class HarnessBug(InfraError):
    """An invariant of our own was broken."""

    cause = Cause.HARNESS_BUG


def did_you_mean(word: str, known: Iterable[str], most: int = 3) -> str:
    """`; did you mean a or b?` with the nearest of the known names, for the end of a message; or nothing.

    Case, dashes and underscores do not count, nor does the part before a name's last slash.
    """
    names: dict[str, str] = {}
    for name in known:
        names.setdefault(_loose(name), name)
        names.setdefault(_loose(name.rpartition("/")[2]), name)
    near = difflib.get_close_matches(_loose(word[:_COMPARED_CHARS]), names, n=2 * most, cutoff=_NEAR)
    meant = list(dict.fromkeys(names[one] for one in near))[:most]
    return f"; did you mean {' or '.join(meant)}?" if meant else ""


def _loose(name: str) -> str:
    return name.lower().translate({ord(sign): None for sign in "-_ *"})


def refuse_url(name_or_path: str) -> None:
    """Raises UsageError for a URL where a folder or a file is wanted."""
    found = _URL.match(name_or_path)
    if found is not None:
        # pathlib has made one slash of two.
        url = f"{found[1]}://{name_or_path[found.end() :]}" if found[1] else name_or_path
        raise UsageError(
            f"{url} is a URL, and nothing is fetched from URLs: download it (git clone), then name the folder"
        )
