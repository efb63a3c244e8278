"""Exceptions of liftbench. A failed project is no exception but a `Finding`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from harness.outcome import Cause

_NEAR = 0.7
_COMPARED_CHARS = 80  # difflib is quadratic
_URL = re.compile(r"(https?|git|ssh|hf|file):/+|git@[\w.-]+:")


class LiftbenchError(Exception):
    """Base class."""


class UsageError(LiftbenchError):
    """The user's input cannot be used (exit code 2); the message says what, where, and what to do next."""


class BudgetSpent(LiftbenchError):
    """A limit on tokens, dollars or calls is reached; no further request is sent."""


class DownloadError(LiftbenchError):
    """A package index is unreachable, or lacks the package; nothing was changed."""


class InfraError(LiftbenchError):
    """Infrastructure failed: a trial's verdict becomes `infra`; retried, never scored."""

    cause: Cause = Cause.HARNESS_BUG


class ProviderError(InfraError):
    """A model API failed after the SDK's retries, or sent a malformed reply."""

    cause = Cause.PROVIDER


class PermanentProviderError(ProviderError):
    """A failure that asking again does not repair: no server, a bad key, no credit, no such model."""


class SandboxError(InfraError):
    """A sandbox could not start a process, or broke a promise."""

    cause = Cause.SANDBOX


class StorageError(InfraError):
    """A folder is full, missing or read-only, until somebody repairs it."""

    cause = Cause.STORAGE


class DeviceError(InfraError):
    """A GPU failed, or disappeared."""

    cause = Cause.DEVICE


class DeviceLost(DeviceError):
    """A GPU that was healthy before a project ran on it fails its health check."""

    def __init__(self, message: str, project: str) -> None:
        """`project`: digest of the project that ran on it."""
        super().__init__(message)
        self.project = project


class GraderRefused(DeviceError):
    """A grader cannot work here until somebody changes the machine; trying again is useless."""


class NoGraderLeft(DeviceError):
    """All graders of a fleet are lost: the run stops, and what is not graded is owed."""


class HarnessBug(InfraError):
    """An invariant of liftbench is broken."""


def did_you_mean(word: str, known: Iterable[str], most: int = 3) -> str:
    """`; did you mean a or b?` with the most similar known names, or "".

    Ignores case, dashes, underscores, and optionally the part before a name's last slash.
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


def refuse_url(name_or_path: str, advice: str = "download it (git clone) and pass the folder") -> None:
    """Raise UsageError for a URL where a path is expected."""
    found = _URL.match(name_or_path)
    if found is not None:
        # pathlib turns `//` into `/`.
        url = f"{found[1]}://{name_or_path[found.end() :]}" if found[1] else name_or_path
        raise UsageError(f"{url} is a URL; liftbench reads only local paths: {advice}")
