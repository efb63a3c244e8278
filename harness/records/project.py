"""Records of a student's project, of findings against it, and of source that it shares with kernels_ref."""

from __future__ import annotations

from typing import Final, Self

from pydantic import Field, field_validator, model_validator

from harness.outcome import Cause, Verdict
from harness.records.base import Record, digest_of

EVIDENT_ROWS: Final = 8
"""Fewer common n-grams can be an idiom: unrelated experts share up to 7, a copied function has hundreds."""
EVIDENT_TOKENS: Final = 100
"""Tokens of a common stretch that is evidence by itself: recorded replies reach 49, whole experts 442."""
COPIED_SHARE: Final = 0.1
"""Of a project's n-grams, from which it is flagged: recorded replies reach 2.7 %, whole experts 17 %."""
COPIED: Final = "copied from kernels_ref"


class Finding(Record):
    cause: Cause
    message: str
    """What happened, where, and what was expected; the first line stands alone."""

    @field_validator("message")
    @classmethod
    def _writable(cls, message: str) -> str:
        """Replaces lone surrogates, which a quoted reply may hold and UTF-8 cannot."""
        return message.encode(errors="replace").decode()

    @property
    def verdict(self) -> Verdict:
        return self.cause.verdict


class ProjectFile(Record):
    path: str
    text: str


class Project(Record):
    """A kernel-builder project: a bounded number of text files of bounded size."""

    files: tuple[ProjectFile, ...]
    left_out: dict[str, str] = Field(default_factory=dict)
    """Path -> why the file there is not part of it (`is a symbolic link`); empty for a reply."""

    @property
    def digest(self) -> str:
        return digest_of([[f.path, f.text] for f in self.files])

    @model_validator(mode="after")
    def _sorted_and_unique(self) -> Self:
        paths = [f.path for f in self.files]
        if paths != sorted(set(paths)):
            raise ValueError("project files must be sorted by path and unique")
        return self


class Origin(Record):
    """The file of kernels_ref that shares most n-grams with a project, and its longest common stretch."""

    task: str
    file: str
    rows: int = Field(ge=1)
    """Distinct n-grams in common with this file."""
    longest: int
    """Tokens of the longest common stretch that contains such an n-gram."""
    source_line: int
    """1-based line where the stretch begins in this file."""
    project_file: str
    project_line: int


class Provenance(Record):
    """How much of a project equals source of any expert, apart from comments, `#include` and build.toml."""

    rows: int = Field(ge=0)
    """Distinct n-grams of 13 tokens in the project that can be evidence."""
    common: int = Field(ge=0)
    """Those of them that some expert's file contains."""
    origin: Origin | None = None

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        most = 0 if self.origin is None else self.origin.rows
        if not most <= self.common <= self.rows or (self.origin is None) != (self.common == 0):
            raise ValueError("rows in common are rows of the project's, and have an origin")
        return self

    @property
    def share(self) -> float:
        return self.common / self.rows if self.rows else 0.0

    @property
    def evident(self) -> bool:
        stretch = 0 if self.origin is None else self.origin.longest
        return self.common >= EVIDENT_ROWS or stretch >= EVIDENT_TOKENS

    @property
    def flags(self) -> tuple[str, ...]:
        return (COPIED,) if self.evident and self.share >= COPIED_SHARE else ()
