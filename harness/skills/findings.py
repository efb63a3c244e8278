"""What is wrong with a skill, one record for each fault.

Only errors make a skill invalid, so an error is certain: its author would agree.
"""

from __future__ import annotations

from typing import Literal

from harness.records import Record

Severity = Literal["error", "warning", "note"]


class SkillFinding(Record):
    """One fault of a skill, where it stands, and what to do about it."""

    file: str
    """Relative to the skill's directory, POSIX."""
    line: int | None
    """1-based; None when the fault is the whole file's."""
    severity: Severity
    """An error is certain; a warning is likely, or advice; a note says what could not be judged."""
    message: str

    def __str__(self) -> str:
        """`SKILL.md:3: error: ...`, as compilers print it."""
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.severity}: {self.message}"


def error(file: str, line: int | None, message: str) -> SkillFinding:
    """A finding that makes the skill invalid."""
    return SkillFinding(file=file, line=line, severity="error", message=message)


def warning(file: str, line: int | None, message: str) -> SkillFinding:
    """A finding that is advice."""
    return SkillFinding(file=file, line=line, severity="warning", message=message)


def note(file: str, line: int | None, message: str) -> SkillFinding:
    """What could not be judged, and why."""
    return SkillFinding(file=file, line=line, severity="note", message=message)
