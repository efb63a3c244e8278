"""Which arms are compared, which tests are adjusted together, and what is decided.

The decision rests on the metric fixed before the run; if that one was not measured, it is inconclusive.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness import stats
from harness.records import Arm, RunConfig
from harness.report import breakdown
from harness.report.arms import spending
from harness.report.comparison_schema import (
    Comparison,
    Conclusion,
    FamilyLift,
    Matrix,
    MatrixCell,
    MatrixRow,
    MetricRow,
    TaskLift,
)
from harness.report.figures import plural
from harness.report.metrics import TESTED, Metric, Scores, metrics_for
from harness.report.schema import ArmSummary, Gap
from harness.report.study_size import detected, least_families
from harness.text import clean

SKEWED_BELOW: Final = 20
"""Families below which the interval of `deployed`, which piles up at 0, covers less than it says."""
_ALPHA: Final = 0.05


def look_of(alpha: float) -> int | None:
    """k where alpha is 0.05 / 2^k with k >= 1, else None."""
    k = round(math.log2(_ALPHA / alpha))
    return k if k >= 1 and math.isclose(alpha, _ALPHA / 2**k) else None


ON_BOARDS: Final = ("compiles", "correct_emulated", "correct", "deployed")


@dataclass(frozen=True)
class ScoredRun:
    """What all comparisons of a run share; leaked tasks have no score here."""

    config: RunConfig
    scores: Mapping[tuple[str, str], Scores]
    by_turn: Mapping[tuple[str, str], Sequence[Scores]]
    """The same after every turn; empty where the run has one turn."""
    leaked: Mapping[str, str]
    summaries: Mapping[tuple[str, str], ArmSummary]
    build_gap: Gap | None
    check_gap: Gap | None
    emulated: bool
    """Some trial was checked on the emulated GPU."""
    emulated_gap: Gap | None
    lean: bool = False
    """Only what a leaderboard shows: rates and deployed speed, without breakdowns."""

    @property
    def confidence(self) -> float:
        return 1.0 - self.config.alpha

    @property
    def minimum_families(self) -> int:
        return least_families(self.config.alpha)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        emulated = self.emulated or self.config.metric == "correct_emulated"
        made = metrics_for(self.config.repeats, emulated=emulated)
        return tuple(metric for metric in made if metric.name in ON_BOARDS) if self.lean else made

    @property
    def primary(self) -> Metric:
        return next(m for m in self.metrics if m.name == self.config.metric)

    def gap(self, metric: str) -> Gap | None:
        gaps = {"compiles": self.build_gap, "correct_emulated": self.emulated_gap}
        return gaps.get(metric, self.check_gap)

    def lift(self, metric: Metric, model: str, treatment: Arm, control: Arm) -> stats.Lift | None:
        """None when the metric was not measured in this run."""
        if self.gap(metric.name):
            return None
        return metric.lift(self.scores[model, treatment.id], self.scores[model, control.id], self.confidence)


@dataclass(frozen=True)
class _Contrast:
    """One pair of arms of one model, before adjustment."""

    model: str
    treatment: Arm
    control: Arm
    placebo: Arm | None
    lifts: Mapping[str, stats.Lift | None]
    placebo_lift: stats.Lift | None
    infra_p: float
    blocked: str | None


def comparisons(run: ScoredRun) -> tuple[Comparison, ...]:
    """One comparison per model, with_skill arm and control."""
    contrasts = [_contrast(run, *pair) for pair in _pairs(run.config)]
    adjusted = _adjusted(contrasts, run.config.metric)
    return tuple(
        _comparison(run, contrast, _conclude(run, contrast, p))
        for contrast, p in zip(contrasts, adjusted, strict=True)
    )


def _pairs(config: RunConfig) -> Iterable[tuple[str, Arm, Arm, Arm | None]]:
    """Model, treatment, control, placebo; one placebo serves all, or they go by order."""
    kinds: dict[str, list[Arm]] = defaultdict(list)
    for arm in config.arms:
        kinds[arm.kind].append(arm)
    treatments, placebos = kinds["with_skill"], kinds["placebo"]
    by_order = len(placebos) == len(treatments)
    for model in config.models:
        for control in (*kinds["without_skill"], *kinds["old_skill"]):
            for index, treatment in enumerate(treatments):
                placebo = placebos[index if by_order else 0] if placebos else None
                yield model.name, treatment, control, placebo


def _contrast(run: ScoredRun, model: str, treatment: Arm, control: Arm, placebo: Arm | None) -> _Contrast:
    first = run.summaries[model, treatment.id]
    others = [run.summaries[model, arm.id] for arm in (control, placebo) if arm is not None]
    p_of = {
        one.kind: stats.fisher_exact(first.infra_trials, first.scored, one.infra_trials, one.scored)
        for one in others
    }
    kind, lowest = min(p_of.items(), key=lambda item: item[1])
    blocked = f"infra rates differ between with_skill and {kind} (p = {lowest:.3g})"
    return _Contrast(
        model=model,
        treatment=treatment,
        control=control,
        placebo=placebo,
        lifts={m.name: run.lift(m, model, treatment, control) for m in run.metrics},
        placebo_lift=run.lift(run.primary, model, treatment, placebo) if placebo else None,
        infra_p=p_of[control.kind],
        blocked=blocked if lowest < _ALPHA else None,
    )


def _adjusted(contrasts: Sequence[_Contrast], primary: str) -> list[float | None]:
    """Holm over the decisions with the same kind of control; None where there is only one."""
    result: list[float | None] = [None] * len(contrasts)
    by_kind: dict[str, list[int]] = defaultdict(list)
    for index, contrast in enumerate(contrasts):
        by_kind[contrast.control.kind].append(index)
    for indices in by_kind.values():
        tested = [(contrasts[i].lifts[primary], contrasts[i].placebo_lift) for i in indices]
        for index, p in zip(indices, stats.adjusted_together(tested), strict=True):
            result[index] = p
    return result


def _conclude(run: ScoredRun, contrast: _Contrast, p_adjusted: float | None) -> Conclusion:
    metric, gap = run.config.metric, run.gap(run.config.metric)
    lift, least = contrast.lifts[metric], run.minimum_families
    made = None
    if lift is None:
        reason = f"{metric} was not measured: {gap.reason if gap else 'unknown'}"
    elif not lift.n_families:
        reason = "no task has a scored trial in both arms"
    elif lift.n_families < least:
        reason = f"too few families ({lift.n_families} of at least {least})"
    else:
        made = stats.decide(
            lift,
            minimum_families=least,
            alpha=run.config.alpha,
            blocked=contrast.blocked,
            placebo=contrast.placebo_lift,
            p_adjusted=p_adjusted,
        )
        reason = made.reason
    if run.primary.unit == "ratio":  # decided on logs, where no change is 0; shown as ratios
        reason = reason.replace("excludes 0", "excludes x1").replace("includes 0", "includes x1")
    return Conclusion(
        decision=made.decision if made else "inconclusive",
        metric=metric,
        reason=reason,
        p_adjusted=p_adjusted,
        alpha=run.config.alpha,
        look=look_of(run.config.alpha),
    )


def _comparison(run: ScoredRun, contrast: _Contrast, made: Conclusion) -> Comparison:
    model, primary, placebo = contrast.model, run.config.metric, contrast.placebo
    treatment, control = (run.scores[model, arm.id] for arm in (contrast.treatment, contrast.control))
    tested = [m.name for m in run.metrics if m.name in TESTED and m.name != primary]
    ps = [lift.p_value if (lift := contrast.lifts[name]) else None for name in tested]
    holm: dict[str, float | None] = dict(zip(tested, stats.holm(ps), strict=True))

    def row(metric: Metric, lift: stats.Lift | None) -> MetricRow:
        p_holm, gap = holm.get(metric.name), run.gap(metric.name)
        return _metric_row(metric, lift, primary=primary, p_holm=p_holm, gap=gap)

    main = contrast.lifts[primary]
    sides = [run.summaries[model, arm.id] for arm in (contrast.treatment, contrast.control)]
    return Comparison(
        model=model,
        treatment=contrast.treatment.id,
        control=contrast.control.id,
        placebo=placebo.id if placebo else None,
        label=sides[0].label,
        control_label=sides[1].label,
        rows=tuple(row(metric, contrast.lifts[metric.name]) for metric in run.metrics),
        placebo_row=row(run.primary, contrast.placebo_lift) if placebo else None,
        infra_p=contrast.infra_p,
        conclusion=made,
        observed=detected(primary, main, run.config.alpha) if main and not run.lean else None,
        caveats=tuple(_caveats(run, row(run.primary, main), sides)),
        **({"fast_p": ()} if run.lean else _breakdowns(run, contrast, treatment, control)),
    )


def _breakdowns(run: ScoredRun, contrast: _Contrast, treatment: Scores, control: Scores) -> dict[str, Any]:
    """What stands beside the lift in a report."""
    built, checked, alpha = run.build_gap is None, run.check_gap is None, run.config.alpha
    model, primary, least = contrast.model, run.config.metric, run.minimum_families
    arms = [(model, arm.id) for arm in (contrast.treatment, contrast.control)]
    turns = () if run.gap(primary) else (run.by_turn[arms[0]], run.by_turn[arms[1]])
    passes = breakdown.pass_lifts(treatment, control, run.config.repeats, run.confidence)
    theirs = breakdown.kernelbench_points(treatment, control, run.confidence)
    classes = breakdown.error_classes(treatment, control, alpha, least, built=built, checked=checked)
    return {
        "fast_p": tuple(breakdown.fast_points(treatment, control, run.confidence)) if checked else (),
        "kernelbench_fast_p": tuple(theirs) if checked else (),
        "spending": spending(treatment, control, contrast.lifts["correct"], alpha),
        "transitions": breakdown.transitions(treatment, control),
        "error_classes": classes,
        "passes": tuple(passes) if checked else (),
        "turns": tuple(breakdown.turn_points(run.primary, *turns, run.confidence)) if turns else (),
    }


def _metric_row(
    metric: Metric, lift: stats.Lift | None, *, primary: str, p_holm: float | None, gap: Gap | None
) -> MetricRow:
    """The row of one metric; lift is None exactly when gap says why it was not measured."""
    role = "primary" if metric.name == primary else "secondary" if metric.name in TESTED else "descriptive"
    lift = lift or stats.paired_lift([])
    tasks: dict[str, list[TaskLift]] = defaultdict(list)
    for family, task, difference in lift.per_task:
        tasks[family].append(TaskLift(task=task, lift=metric.shown(difference)))
    made = metric.facts(lift) | {
        "role": role,
        "p_value": None if role == "descriptive" else lift.p_value,
        "p_holm": p_holm,
        "per_family": tuple(
            FamilyLift(family=family, lift=metric.shown(difference), tasks=tuple(tasks[family]))
            for family, difference in lift.per_family
        ),
        "not_measured": gap.reason if gap else None,
    }
    return MetricRow.model_validate(made)


def _caveats(run: ScoredRun, row: MetricRow, sides: Sequence[ArmSummary]) -> Iterable[str]:
    alpha, n = run.config.alpha, row.n_families
    if (look := look_of(alpha)) is not None:
        yield (
            f"look {look} of this skill's lineage at these tasks: decided at alpha {alpha:g}, "
            f"which keeps all looks together below 0.05"
        )
    if run.leaked:
        named = ", ".join(f"{clean(task)} ({clean(where)})" for task, where in sorted(run.leaked.items()))
        yield f"{plural(len(run.leaked), 'task')} excluded because a skill repeats the reference: {named}"
    if n >= run.minimum_families and 2.0 ** (2 - n) > alpha:
        yield f"{n} families: p can reach {alpha:g} only if all {n} differ in the same direction"
    if row.metric == "deployed" and run.minimum_families <= n < SKEWED_BELOW:
        yield (
            f"{n} families: below {SKEWED_BELOW} the deployed score is skewed, so its interval is approximate"
        )
    if row.n_dropped_tasks:
        yield f"{plural(row.n_dropped_tasks, 'task')} without a scored trial in both arms excluded"
    owed = sum(side.planned - side.scored - side.infra_trials for side in sides)
    if owed > 0:
        yield f"{plural(owed, 'planned trial')} of these arms not measured yet: the decision may change"
    if noisy := sum(side.noisy for side in sides):
        yield f"{plural(noisy, 'speedup')} timed on a noisy host: counted here, never ranked"


def matrices(made: Sequence[Comparison]) -> Iterable[Matrix]:
    """One matrix per kind of control with more than one comparison."""
    for label in dict.fromkeys(c.control_label for c in made):
        members = [c for c in made if c.control_label == label]
        if len(members) < 2:
            continue
        columns = {c.treatment: c.label for c in members}
        cells: dict[str, list[MatrixCell]] = defaultdict(list)
        for c in members:
            effect = c.primary.model_dump(include={"lift", "low", "high"})
            cells[c.model].append(MatrixCell(arm=c.treatment, decision=c.conclusion.decision, **effect))
        yield Matrix(
            control_label=label,
            unit=members[0].primary.unit,
            columns=tuple(columns.values()),
            rows=tuple(MatrixRow(model=model, cells=tuple(row)) for model, row in cells.items()),
        )
