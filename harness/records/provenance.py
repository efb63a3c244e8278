"""Records of where a project's source stands already: in the expert projects of kernels_ref."""

from __future__ import annotations

from typing import Final, Self

from pydantic import Field, model_validator

from harness.records.base import Record

EVIDENT_ROWS: Final = 8
"""Different rows in common from which on it is no idiom: our experts of unrelated families share up to 7, a
copied function has hundreds."""
EVIDENT_TOKENS: Final = 100
"""One stretch in common of so many tokens is no idiom either, however few rows of it can be evidence:
recorded replies have up to 49, whole expert projects 442 and more."""
COPIED_SHARE: Final = 0.1
"""Of a project's own rows in common from which on a flag is raised: recorded replies have up to 2.7 %, a
whole expert for one target has 17 % and more (docs/judging.md)."""
COPIED: Final = "copied from kernels_ref"
"""The flag: it says where the source stands, not that the project is wrong or slow."""


class Origin(Record):
    """The file of kernels_ref that has most of a project's rows, and where both begin to agree at length."""

    task: str
    file: str
    """Below `kernels_ref/TASK/`."""
    rows: int = Field(ge=1)
    """Different rows in common with this file."""
    longest: int
    """Tokens of the longest stretch in common that has such a row in it."""
    source_line: int
    """1-based: where that stretch begins in this file."""
    project_file: str
    project_line: int
    """1-based: where it begins in the project."""


class Provenance(Record):
    """How much of a project's own source stands, token for token, in the experts of any task; comments,
    `#include` lines and build.toml do not count."""

    rows: int = Field(ge=0)
    """Different rows of 13 tokens of the project's own that can be evidence."""
    common: int = Field(ge=0)
    """Of these, how many stand in some expert's file."""
    origin: Origin | None = None
    """None exactly when nothing is in common."""

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        most = 0 if self.origin is None else self.origin.rows
        if not most <= self.common <= self.rows or (self.origin is None) != (self.common == 0):
            raise ValueError("rows in common are rows of the project's, and have an origin")
        return self

    @property
    def share(self) -> float:
        """Of its own rows that are in common, 0 to 1; 0 where it has none of its own."""
        return self.common / self.rows if self.rows else 0.0

    @property
    def evident(self) -> bool:
        """More is in common than an idiom."""
        stretch = 0 if self.origin is None else self.origin.longest
        return self.common >= EVIDENT_ROWS or stretch >= EVIDENT_TOKENS

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader of the result should know."""
        return (COPIED,) if self.evident and self.share >= COPIED_SHARE else ()
