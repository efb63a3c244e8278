"""Model by model, with_skill against its controls: which tests are made, adjusted and decided on.

Owns: the pairs of arms, Holm's families of tests, what blocks a decision. Does not own: the formulas
(harness.stats) or what a trial counts for (scoring.py). Invariant: the decision rests on the metric
fixed before the run; if that one was not measured, the decision is inconclusive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness import stats
from harness.decision import Decision, decide
from harness.records import Arm, RunConfig
from harness.report.figures import plural
from harness.report.metrics import TESTED, Metric, metrics_for
from harness.report.records import ArmSummary, Comparison, Conclusion, Gap, MetricRow
from harness.report.rows import fast_points, metric_row
from harness.report.scoring import Score

MINIMUM_FAMILIES: Final = 6
SKEWED_BELOW: Final = 20  # below, the t interval of `deployed` (mass at 0) covers less than it says [own]
_INFRA_ALPHA: Final = 0.05


@dataclass(frozen=True)
class Study:
    """What all comparisons of a run share."""

    config: RunConfig
    scores: Mapping[tuple[str, str], Sequence[Score]]
    """By model and arm."""
    summaries: Mapping[tuple[str, str], ArmSummary]
    build_gap: Gap | None
    check_gap: Gap | None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """In the order in which they are shown."""
        return metrics_for(self.config.repeats)

    @property
    def primary(self) -> Metric:
        """The metric that the decision rests on."""
        return next(m for m in self.metrics if m.name == self.config.metric)

    def gap(self, metric: str) -> Gap | None:
        """Why a metric was not measured."""
        return self.build_gap if metric == "compiles" else self.check_gap

    def lift(self, metric: Metric, model: str, treatment: Arm, control: Arm) -> stats.Lift | None:
        """None when the metric was not measured in this run."""
        if self.gap(metric.name):
            return None
        return metric.lift(self.scores[model, treatment.id], self.scores[model, control.id])


@dataclass(frozen=True)
class Contrast:
    """One pair of arms of one model, before adjustment."""

    model: str
    treatment: Arm
    control: Arm
    placebo: Arm | None
    lifts: Mapping[str, stats.Lift | None]
    """By metric."""
    placebo_lift: stats.Lift | None
    """On the primary metric."""
    infra_p: float
    blocked: str | None


def _contrast(study: Study, model: str, treatment: Arm, control: Arm, placebo: Arm | None) -> Contrast:
    first = study.summaries[model, treatment.id]
    p_of: dict[str, float] = {}
    for arm in (control, placebo):
        if arm is not None:
            other = study.summaries[model, arm.id]
            p_of[arm.kind] = stats.fisher_exact(
                first.infra_trials, first.scored, other.infra_trials, other.scored
            )
    kind, lowest = min(p_of.items(), key=lambda item: item[1])
    blocked = f"infra rates differ between with_skill and {kind} (p = {lowest:.3g})"
    return Contrast(
        model=model,
        treatment=treatment,
        control=control,
        placebo=placebo,
        lifts={m.name: study.lift(m, model, treatment, control) for m in study.metrics},
        placebo_lift=study.lift(study.primary, model, treatment, placebo) if placebo else None,
        infra_p=p_of[control.kind],
        blocked=blocked if lowest < _INFRA_ALPHA else None,
    )


def _decision_p(contrast: Contrast, primary: str) -> float | None:
    """The p value that stands for the whole decision: with a placebo, `helps` needs both tests."""
    lift = contrast.lifts[primary]
    if lift is None or lift.p_value is None:
        return None
    if contrast.placebo_lift is None or (lift.lift or 0.0) <= 0.0:
        return lift.p_value
    placebo = contrast.placebo_lift.p_value
    return None if placebo is None else max(lift.p_value, placebo)


def _adjusted(contrasts: Sequence[Contrast], primary: str) -> list[float | None]:
    """Holm over the decisions with the same kind of control; None where there is only one."""
    result: list[float | None] = [None] * len(contrasts)
    by_kind: dict[str, list[int]] = defaultdict(list)
    for index, contrast in enumerate(contrasts):
        by_kind[contrast.control.kind].append(index)
    for indices in by_kind.values():
        if len(indices) > 1:
            holm = stats.holm([_decision_p(contrasts[i], primary) for i in indices])
            for index, p in zip(indices, holm, strict=True):
                result[index] = p
    return result


def _conclude(study: Study, contrast: Contrast, p_adjusted: float | None) -> Conclusion:
    metric, gap = study.config.metric, study.gap(study.config.metric)
    lift = contrast.lifts[metric]
    if lift is None:
        why = f"{metric} was not measured: {gap.reason if gap else 'unknown'}"
        decision = Decision("inconclusive", why)
    elif not lift.n_families:
        decision = Decision("inconclusive", "no task has a scored trial in both arms")
    elif lift.n_families < MINIMUM_FAMILIES:
        why = f"too few families ({lift.n_families} of at least {MINIMUM_FAMILIES})"
        decision = Decision("inconclusive", why)
    else:
        decision = decide(
            lift,
            minimum_families=MINIMUM_FAMILIES,
            blocked=contrast.blocked,
            placebo=contrast.placebo_lift,
            p_adjusted=p_adjusted,
        )
    reason = decision.reason
    if study.primary.unit == "ratio":  # decided on logs, where no change is 0; the reader sees ratios
        reason = reason.replace("excludes 0", "excludes x1").replace("includes 0", "includes x1")
    return Conclusion(decision=decision.decision, metric=metric, reason=reason, p_adjusted=p_adjusted)


def _caveats(row: MetricRow, sides: Sequence[ArmSummary]) -> Iterable[str]:
    if row.metric == "deployed" and MINIMUM_FAMILIES <= row.n_families < SKEWED_BELOW:
        yield (
            f"{row.n_families} families: below {SKEWED_BELOW} the deployed score is skewed, "
            "so its interval is approximate"
        )
    if row.n_dropped_tasks:
        yield f"{plural(row.n_dropped_tasks, 'task')} without a scored trial in both arms left out"
    owed = sum(side.planned - side.scored - side.infra_trials for side in sides)
    if owed > 0:
        yield f"{plural(owed, 'planned trial')} of these arms owed: the decision may change"
    noisy = sum(side.noisy for side in sides)
    if noisy:
        yield f"{plural(noisy, 'speedup')} timed on a noisy host: counted here, never ranked"


def _pairs(config: RunConfig) -> Iterable[tuple[str, Arm, Arm, Arm | None]]:
    """Model, treatment, control, placebo; as many placebos as skills go by order, else the first serves."""
    kinds: dict[str, list[Arm]] = defaultdict(list)
    for arm in config.arms:
        kinds[arm.kind].append(arm)
    treatments, placebos = kinds["with_skill"], kinds["placebo"]
    by_order = len(placebos) == len(treatments)
    for model in config.models:
        for control in kinds["without_skill"] + kinds["old_skill"]:
            for index, treatment in enumerate(treatments):
                placebo = placebos[index if by_order else 0] if placebos else None
                yield model.name, treatment, control, placebo


def _comparison(study: Study, contrast: Contrast, p_adjusted: float | None) -> Comparison:
    model, primary, placebo = contrast.model, study.config.metric, contrast.placebo
    treatment = study.scores[model, contrast.treatment.id]
    control = study.scores[model, contrast.control.id]
    tested = [m.name for m in study.metrics if m.name in TESTED and m.name != primary]
    ps = [lift.p_value if (lift := contrast.lifts[name]) else None for name in tested]
    holm: dict[str, float | None] = dict(zip(tested, stats.holm(ps), strict=True))

    def row(metric: Metric, lift: stats.Lift | None, other: Sequence[Score]) -> MetricRow:
        p_holm, gap = holm.get(metric.name), study.gap(metric.name)
        return metric_row(metric, lift, treatment, other, primary=primary, p_holm=p_holm, gap=gap)

    rows = tuple(row(metric, contrast.lifts[metric.name], control) for metric in study.metrics)
    placebo_scores = study.scores[model, placebo.id] if placebo else ()
    sides = [study.summaries[model, arm.id] for arm in (contrast.treatment, contrast.control)]
    return Comparison(
        model=model,
        treatment=contrast.treatment.id,
        control=contrast.control.id,
        placebo=placebo.id if placebo else None,
        label=sides[0].label,
        control_label=sides[1].label,
        rows=rows,
        fast_p=() if study.check_gap else tuple(fast_points(treatment, control)),
        placebo_row=row(study.primary, contrast.placebo_lift, placebo_scores) if placebo else None,
        infra_p=contrast.infra_p,
        conclusion=_conclude(study, contrast, p_adjusted),
        caveats=tuple(_caveats(next(r for r in rows if r.metric == primary), sides)),
    )


def comparisons(study: Study) -> tuple[Comparison, ...]:
    """One comparison per model, with_skill arm and control."""
    contrasts = [_contrast(study, *pair) for pair in _pairs(study.config)]
    adjusted = _adjusted(contrasts, study.config.metric)
    return tuple(_comparison(study, c, p) for c, p in zip(contrasts, adjusted, strict=True))
