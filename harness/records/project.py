"""Records of a student's project, and of why something of it fell short."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from harness.outcome import POLICY, Cause, Verdict
from harness.records.base import Record, digest_of


class Finding(Record):
    """Why something of the student's fell short: data, not an exception."""

    cause: Cause
    message: str
    """What happened, where, and what was expected; first line stands alone."""

    @field_validator("message")
    @classmethod
    def _writable(cls, message: str) -> str:
        """It may quote a student, whose lone surrogates are text in Python and in JSON but not in UTF-8."""
        return message.encode(errors="replace").decode()

    @property
    def verdict(self) -> Verdict:
        """The verdict that the policy table gives to the cause."""
        return POLICY[self.cause].verdict


class ProjectFile(Record):
    """One file of a project."""

    path: str
    """Relative, POSIX, inside the project."""
    text: str


class Project(Record):
    """A kernel-builder project: text files (project.py and catalogue.py say how many and how large)."""

    files: tuple[ProjectFile, ...]
    """Sorted by path; paths are unique."""
    left_out: dict[str, str] = Field(default_factory=dict)
    """Path -> why what lies there is no part of it (`is a symbolic link`); empty for a reply."""

    @property
    def digest(self) -> str:
        """Over paths and contents of the files."""
        return digest_of([[f.path, f.text] for f in self.files])

    @model_validator(mode="after")
    def _sorted_and_unique(self) -> Self:
        paths = [f.path for f in self.files]
        if paths != sorted(set(paths)):
            raise ValueError("project files must be sorted by path and unique")
        return self
