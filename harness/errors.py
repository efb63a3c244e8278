"""Failures that are ours, never the student's.

LiftbenchError
 |- UsageError        the user's input cannot be used (exit code 2)
 |- BudgetSpent       a limit on tokens, dollars or calls is reached: stop, and keep what there is
 |- DownloadError     a package index could not be reached, or has not what was asked for
 |- InfraError        something of ours failed: becomes the verdict `infra` at one boundary (run.py)
     |- ProviderError   a model API failed after its retries
     |- SandboxError    a sandbox could not start, or broke a promise
     |- DeviceError     a GPU failed
     |   |- DeviceLost    it was well before a project ran on it, and is not any more
     |- HarnessBug      we broke an invariant of our own

A bad project is no exception: it is a `Finding` (see records/project.py).
"""

from __future__ import annotations

from harness.outcome import Cause


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
