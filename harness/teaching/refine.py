"""The loop: write, grade on development tasks, refine, and keep the best on the selection split.

The kept version has the best selection score, the earliest of equals; a spent budget, or a teacher that
writes no skill, ends the loop with what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from harness.errors import BudgetSpent
from harness.records import Skill
from harness.report.metrics import metrics_for
from harness.report.scoring import score
from harness.study.arms import Arms, make_arms
from harness.teaching.brief import EVIDENCE_TOKENS, Order
from harness.teaching.evidence import evidence
from harness.teaching.splits import Split
from harness.teaching.workshop import Evaluated, NoSkill, Version, Workshop


class Evaluate(Protocol):
    """Grades arms on a split, for real."""

    def __call__(self, split: Split, arms: Arms) -> Evaluated:
        """All trials of these arms on the tasks of the split."""
        ...


@dataclass
class Search:
    """What the loop has found so far."""

    versions: list[Version]
    without_skill: float | None = None
    stopped: str | None = None
    """Why it was interrupted; None when it came to its end."""
    gave_up: str | None = None
    """Why the teacher wrote no further version: asking again would bring the same kept replies."""

    @property
    def best(self) -> Version | None:
        """The best on selection, the earliest of equals; None when none was scored."""
        scored = [v for v in self.versions if v.selection is not None]
        return max(scored, key=lambda v: (v.selection or 0.0, -v.index)) if scored else None


def search(
    order: Order,
    workshop: Workshop,
    evaluate: Evaluate,
    *,
    old: Path | None,
    rounds: int,
    metric: str,
    families: Mapping[str, str],
    told: Callable[[Version, str], None] = lambda version, what: None,
) -> Search:
    """Write a first version (or take `old`), then refine the best one `rounds` times.

    `families`: task id to family; `told` hears of every version. Raises NoSkill where there is no version.
    """
    found = Search([])
    control = make_arms([])
    try:
        found.versions.append(workshop.first(order) if old is None else workshop.adopt(old))
        told(found.versions[0], "written" if old is None else "taken over")
        chosen_by = evaluate("selection", control)
        found.without_skill = _score(chosen_by, metric, families)
        _measure_selection(found, 0, evaluate, metric, families)
        without = evaluate("development", control) if rounds else chosen_by
        for _ in range(rounds):
            best = found.best or found.versions[0]
            position = found.versions.index(best)
            done = best.development or evaluate("development", _only(best.skill))
            found.versions[position] = best = replace(best, development=done)
            _stop_if(done)
            facts = evidence(done.trials, without.trials, done.sources, EVIDENCE_TOKENS)
            rejected = len(found.versions) - 1 - position
            found.versions.append(workshop.next(order, best, facts, rejected))
            told(found.versions[-1], f"made from version {best.index}")
            _measure_selection(found, len(found.versions) - 1, evaluate, metric, families)
    except BudgetSpent as spent:
        found.stopped = str(spent)
    except NoSkill as fault:
        if not found.versions:
            raise
        found.gave_up = str(fault)
    return found


def _only(skill: Skill) -> Arms:
    return make_arms([skill], control=False)


def _stop_if(evaluated: Evaluated) -> None:
    if evaluated.stopped is not None:
        raise BudgetSpent(evaluated.stopped)


def _measure_selection(
    found: Search, position: int, evaluate: Evaluate, metric: str, families: Mapping[str, str]
) -> None:
    """Score a version; one that was not graded to the end has no score, for its tasks would be others."""
    version = found.versions[position]
    evaluated = evaluate("selection", _only(version.skill))
    found.versions[position] = replace(version, selection=_score(evaluated, metric, families))


def _score(evaluated: Evaluated, metric: str, families: Mapping[str, str]) -> float | None:
    """Mean over families of task means of the metric; None where nothing was measured."""
    _stop_if(evaluated)
    scores = [one for trial in evaluated.trials if (one := score(trial, families)) is not None]
    chosen = next(m for m in metrics_for(1) if m.name == metric)
    # Of an arm against itself: the lift is 0, and the mean is the one that reports show.
    return chosen.lift(scores, scores).mean_with
