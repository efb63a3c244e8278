"""generation.json: how a skill was written, chosen and tested. A score that was not measured is None."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from harness.errors import UsageError
from harness.models.meter import Spent
from harness.records import Briefing, Metric, Record, Target
from harness.skills.lineage import Look
from harness.skills.spec import read_skill

FILE_NAME: Final = "generation.json"


class CandidateRecord(Record):
    """One version of the skill."""

    index: int
    parent: int | None
    folder: str
    digest: str
    body_tokens_estimate: int
    warnings: int
    development: dict[str, int] | None = None
    """Verdicts of the development trials; None where they were not needed or not reached."""
    selection: float | None = None
    """Mean over families of the primary metric on the selection split: a share, or ln of a ratio."""


class MeasuredLift(Record):
    """The result of one student on the test split."""

    model: str
    without_skill: float | None
    with_skill: float | None
    """The primary metric: a share, or ln of a ratio."""
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
    teacher: str
    students: tuple[str, ...]
    target: Target
    briefing: Briefing = "full"
    metric: Metric
    families: dict[str, tuple[str, ...]]
    lineage: str
    candidates: tuple[CandidateRecord, ...] = ()
    without_skill: float | None = None
    chosen: int | None = None
    why: str = ""
    written: str | None = None
    written_digest: str | None = None
    """Digest of the skill as written there; a later call replaces it only while it has this digest."""
    test_cases: int | None = None
    """Written with the skill; None where none was asked for."""
    look: Look | None = None
    test_run: str | None = None
    tested: tuple[MeasuredLift, ...] = ()
    stopped: str | None = None
    spent: dict[str, Spent] = Field(default_factory=dict)

    @property
    def shortfalls(self) -> tuple[str, ...]:
        """Where the chosen version was not shown to be better than no skill, with the figures."""
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
        """The figures, where the skill is not better."""
        if with_skill is None or without is None or with_skill > without:
            return None
        return self._figures(with_skill, without)

    def _figures(self, with_skill: float | None, without: float | None) -> str:
        figures = score_text(self.metric, with_skill), score_text(self.metric, without)
        return f"{self.metric} {figures[0]} with it, {figures[1]} without"


def read_record(folder: Path) -> GenerationRecord | None:
    """What an earlier call has recorded in `folder`; None where there is none, or it is damaged."""
    try:
        return GenerationRecord.model_validate_json((folder / FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def wrote(folder: Path, target: Path) -> bool:
    """Whether the generation in `folder` wrote the skill at `target`, and it is unchanged since."""
    known = read_record(folder)
    try:
        return known is not None and (known.written, known.written_digest) == (
            str(target),
            read_skill(target).digest,
        )
    except UsageError:
        return False
