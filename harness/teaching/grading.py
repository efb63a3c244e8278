"""Grades arms on a split of a generation: ordinary runs, in the generation's folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from harness.errors import InfraError
from harness.records import Metric, TrialRecord
from harness.report.records import Summary
from harness.skills.lineage import ALPHA
from harness.skills.overlap import excluded_tasks
from harness.skills.spec import LoadedSkill, read_skill
from harness.study.arms import Arms
from harness.study.execute import RunContext, execute, open_study
from harness.study.store import RunStore
from harness.study.study import Study
from harness.teaching.record import MeasuredLift
from harness.teaching.request import GenerationRequest, Split, Splits
from harness.teaching.workshop import Evaluated

SEARCH_REPEATS: Final = 2
"""Replies per task on the development and selection splits; with one, half of a choice is luck."""

Reporter = Callable[[RunStore], Summary]
"""Writes a run's reports and shows them."""


@dataclass(frozen=True)
class Measured:
    """How the test run ended."""

    folder: str
    stopped: str | None
    """Why trials are missing."""
    lifts: tuple[MeasuredLift, ...] = ()


@dataclass(frozen=True)
class SplitGrading:
    """Grades arms on the splits of one generation."""

    request: GenerationRequest
    splits: Splits
    context: RunContext
    report: Reporter

    def evaluate(self, split: Split, arms: Arms) -> Evaluated:
        """All trials of these arms on a split, a few replies per task."""
        study = self._study(split, arms, SEARCH_REPEATS, ALPHA)
        store = open_study(study, self.context)
        self.context.display.say(f"{split} split: {', '.join(arms.named) or 'without skill'}")
        outcome = execute(study, store, self.context)
        return Evaluated(_not_all_lost(store, split), outcome.stopped)

    def test(self, arms: Arms, alpha: float, skill: LoadedSkill) -> Measured:
        """The test run, with its report."""
        old = self.request.old
        skills = [skill] if old is None else [skill, LoadedSkill(read_skill(old), old)]
        study = self._study("test", arms, self.request.repeats, alpha, skills)
        store = open_study(study, self.context)
        self.context.display.say(f"test split: {', '.join(arms.named)}")
        try:
            outcome = execute(study, store, self.context)
        finally:
            summary = self.report(store)
        _not_all_lost(store, "test")
        lifts = () if outcome.stopped is not None else tuple(tested_lifts(summary, self.request.metric))
        return Measured(str(store.folder), outcome.stopped, lifts)

    def _study(
        self, split: Split, arms: Arms, repeats: int, alpha: float, skills: Sequence[LoadedSkill] = ()
    ) -> Study:
        request, tasks = self.request, self.splits.tasks(split)
        return Study(
            arms,
            tasks,
            request.students,
            repeats=repeats,
            target=request.target,
            protocol=request.protocol,
            sampling=request.sampling,
            metric=request.metric,
            turns=request.turns,
            alpha=alpha,
            leaked=excluded_tasks(skills, tasks),
        )


def _not_all_lost(store: RunStore, split: Split) -> tuple[TrialRecord, ...]:
    """The trials so far. Raises InfraError where all are lost: there is nothing to choose or teach by."""
    trials = tuple(store.load())
    if trials and all(trial.infra for trial in trials):
        why = trials[-1].failures[-1].message
        raise InfraError(
            f"nothing is scored: all {len(trials)} trials of the {split} split are lost, the last to: {why}. "
            f"The same command tries them again"
        )
    return trials


def tested_lifts(summary: Summary, metric: Metric) -> Iterator[MeasuredLift]:
    """The new skill against no skill, by student."""
    controls = {arm.arm for arm in summary.arms if arm.kind == "without_skill"}
    treatments = {arm.arm for arm in summary.arms if arm.kind == "with_skill"}
    for one in summary.comparisons:
        if one.control in controls and one.treatment in treatments:
            row = one.row(metric)
            without, with_skill = (
                math.log(level) if level and row.unit == "ratio" else level
                for level in (row.control, row.treatment)
            )
            yield MeasuredLift(
                model=one.model,
                without_skill=without,
                with_skill=with_skill,
                decision=one.conclusion.decision,
            )
