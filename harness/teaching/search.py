"""The search: write a version, measure it on development tasks, refine it, keep the best on selection tasks.

The best version has the highest selection score, the earliest of equals. A spent budget, or a teacher that
writes no skill, ends the search with what there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import BudgetSpent
from harness.report.metrics import metrics_for, score
from harness.study.study import Arms, make_arms
from harness.teaching.brief import Order, evidence
from harness.teaching.request import Split
from harness.teaching.workshop import Evaluated, NoSkill, Version, Workshop

Evaluate = Callable[[Split, Arms], Evaluated]
"""Grades arms on the tasks of a split."""


@dataclass
class Search:
    """A search and what it has found so far."""

    workshop: Workshop
    evaluate: Evaluate
    metric: str
    families: Mapping[str, str]
    say: Callable[[str], None] = lambda text: None
    versions: list[Version] = field(default_factory=list)
    without_skill: float | None = None
    stopped: str | None = None
    gave_up: str | None = None
    """Why the teacher wrote no further version; asking again would give the same kept replies."""

    @property
    def best(self) -> Version | None:
        """The best on selection; None where no version has a score."""
        scored = [v for v in self.versions if v.selection is not None]
        return max(scored, key=lambda v: (v.selection or 0.0, -v.index)) if scored else None

    def run(self, order: Order, *, old: Path | None, rounds: int) -> Search:
        """Write a first version, or take `old`; then refine the best one `rounds` times.

        Raises NoSkill where there is no version.
        """
        try:
            self.versions.append(self.workshop.first(order) if old is None else self.workshop.adopt(old))
            self.say(f"version 0: {'written' if old is None else 'taken over'}")
            control = make_arms([])
            on_selection = self.evaluate("selection", control)
            self.without_skill = self._score(on_selection)
            self._measure_selection(0)
            without = self.evaluate("development", control) if rounds else on_selection
            for _ in range(rounds):
                self._refine(order, without)
        except BudgetSpent as spent:
            self.stopped = str(spent)
        except NoSkill as fault:
            if not self.versions:
                raise
            self.gave_up = str(fault)
        return self

    def _refine(self, order: Order, without: Evaluated) -> None:
        """Write a version from the best one's trials on the development tasks, and score it."""
        best = self.best or self.versions[0]
        position = self.versions.index(best)
        done = best.development or self.evaluate("development", make_arms([best.skill], control=False))
        self.versions[position] = best = replace(best, development=done)
        _stop_if(done)
        rejected = len(self.versions) - 1 - position
        measured = evidence(done.trials, without.trials, briefing=order.briefing)
        made = self.workshop.next(order, best, measured, rejected)
        self.versions.append(made)
        self.say(f"version {made.index}: made from version {best.index}")
        self._measure_selection(len(self.versions) - 1)

    def _measure_selection(self, position: int) -> None:
        """Score a version; one with missing trials has no score, as its tasks would be others."""
        version = self.versions[position]
        evaluated = self.evaluate("selection", make_arms([version.skill], control=False))
        self.versions[position] = replace(version, selection=self._score(evaluated))

    def _score(self, evaluated: Evaluated) -> float | None:
        """Mean over families of task means of the metric; None where nothing was measured."""
        _stop_if(evaluated)
        scores = [one for trial in evaluated.trials if (one := score(trial, self.families)) is not None]
        chosen = next(m for m in metrics_for(1) if m.name == self.metric)
        # The lift of an arm against itself has the mean that reports show.
        return chosen.lift(scores, scores).mean_with


def _stop_if(evaluated: Evaluated) -> None:
    if evaluated.stopped is not None:
        raise BudgetSpent(evaluated.stopped)
