"""Records of what a task was put through before it may be ranked on."""

from __future__ import annotations

from typing import Literal

from harness.records.base import Record, Target

RuleName = Literal[
    "sources", "sizes", "reference", "trivial", "inputs", "precision", "expert", "mutants", "light"
]
RuleStatus = Literal["holds", "fails", "not_measured"]


class Rule(Record):
    """One rule of admission, tried."""

    name: RuleName
    status: RuleStatus
    said: str = ""
    """What failed, or why it was not measured; figures where it holds."""


class Admission(Record):
    """What was found of one task."""

    task: str
    version: int
    task_digest: str
    expert: str | None
    """Digest of the expert project."""
    target: Target
    """What the expert and its mutants ran on."""
    rules: tuple[Rule, ...]

    @property
    def admitted(self) -> bool:
        """Whether no rule failed."""
        return all(rule.status != "fails" for rule in self.rules)
