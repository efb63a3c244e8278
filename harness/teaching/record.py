"""generation.json: how a skill came about, for whoever wants to know or to check.

Owns: its shape. Does not own: the loop. Invariant: a score that was not measured is None; the chosen
candidate has the best selection score of all that have one.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.models.meter import Spent
from harness.records import Record, Target
from harness.teaching.lineage import Look


class CandidateRecord(Record):
    """One version of the skill."""

    index: int
    """0 is the first, or the old skill."""
    parent: int | None
    """The version that it was made from."""
    folder: str
    """Relative to the generation's folder."""
    digest: str
    body_tokens_estimate: int
    warnings: int
    """Of the check; errors keep a version from being one."""
    development: dict[str, int] | None = None
    """Verdicts of the development trials; None where they were not needed or not reached."""
    selection: float | None = None
    """Mean over families of the primary metric on the selection split: a share, or ln of a ratio."""


class GenerationRecord(Record):
    """A generation, as far as it has come."""

    schema_version: Literal[1] = 1
    created: str
    description: str
    source: str | None
    """The trace or skill that it began from."""
    teacher: str
    students: tuple[str, ...]
    target: Target
    metric: Literal["deployed", "correct", "compiles"]
    families: dict[str, tuple[str, ...]]
    """By split; empty without evaluation."""
    lineage: str
    candidates: tuple[CandidateRecord, ...] = ()
    without_skill: float | None = None
    """The selection score without any skill."""
    chosen: int | None = None
    why: str = ""
    """Why this candidate."""
    written: str | None = None
    """Where the skill was written; None where nothing was."""
    written_digest: str | None = None
    """Of the skill as it was written there: by it a later call knows its own work, and replaces it."""
    look: Look | None = None
    """At the test split; None where it was not looked at."""
    test_run: str | None = None
    stopped: str | None = None
    """Why it ended early; None when everything was done."""
    spent: dict[str, Spent] = Field(default_factory=dict)
    """By role (teacher, student), in all calls that worked on it."""
