"""generation.json: how a skill came about, for whoever wants to know or to check.

A score that was not measured is None; the chosen candidate has the best selection score of all that have one.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from harness.models.meter import Spent
from harness.records import Record, Target
from harness.skills.lineage import Look


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


class MeasuredLift(Record):
    """One student on the test split."""

    model: str
    without_skill: float | None
    with_skill: float | None
    """Of the primary metric: a share, or ln of a ratio."""
    decision: Literal["helps", "hurts", "inconclusive"]


def score_text(metric: str, value: float | None) -> str:
    """Such as 40% or 1.25x."""
    if value is None:
        return "not measured"
    return f"{math.exp(value):.2f}x" if metric == "deployed" else f"{100 * value:.0f}%"


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
    tested: tuple[MeasuredLift, ...] = ()
    """By student; empty where the test did not end."""
    stopped: str | None = None
    """Why it ended early; None when everything was done."""
    spent: dict[str, Spent] = Field(default_factory=dict)
    """By role (teacher, student), in all calls that worked on it."""

    @property
    def shortfalls(self) -> tuple[str, ...]:
        """Where the chosen version was not shown to beat no skill, with the figures."""
        chosen = next((one for one in self.candidates if one.index == self.chosen), None)
        found = []
        if chosen is not None and (line := self._against(chosen.selection, self.without_skill)):
            found.append(f"on the selection split the best version did not beat no skill: {line}")
        for one in self.tested:
            where = f"({one.model}, {one.decision}): {self._figures(one.with_skill, one.without_skill)}"
            if self._against(one.with_skill, one.without_skill) is not None:
                found.append(f"on the test split it did not beat no skill {where}")
            elif one.decision != "helps":
                found.append(f"the test did not show that it beats no skill {where}")
        return tuple(found)

    def _against(self, with_skill: float | None, without: float | None) -> str | None:
        """The figures, where the skill is not ahead."""
        if with_skill is None or without is None or with_skill > without:
            return None
        return self._figures(with_skill, without)

    def _figures(self, with_skill: float | None, without: float | None) -> str:
        told = score_text(self.metric, with_skill), score_text(self.metric, without)
        return f"{self.metric} {told[0]} with it, {told[1]} without"
