"""How the checks of a project stop: a Finding on its way up.

It never leaves plan_layout.
"""

from __future__ import annotations

from harness.outcome import Cause
from harness.records import Finding


class Refused(Exception):
    """The project cannot be built as it stands; `finding` says why."""

    def __init__(self, message: str, cause: Cause = Cause.BAD_LAYOUT) -> None:
        super().__init__(message)
        self.finding = Finding(cause=cause, message=message)
