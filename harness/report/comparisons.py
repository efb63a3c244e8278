"""Model by model, with_skill against its controls: which tests are made, adjusted and decided on.

The decision rests on the metric fixed before the run; if that one was not measured, the decision is
inconclusive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness import stats
from harness.records import Arm, RunConfig
from harness.report.error_classes import error_classes
from harness.report.figures import plural
from harness.report.metrics import TESTED, Metric
from harness.report.planning import detected
from harness.report.records import ArmSummary, Comparison, Conclusion, MetricRow, TurnPoint
from harness.report.rows import fast_points, kernelbench_points, metric_row, pass_lifts
from harness.report.scoring import Score
from harness.report.spending import spending
from harness.report.study import Study, look_of
from harness.report.transitions import transitions
from harness.report.turns import turn_points
from harness.stats import Decision, adjusted_together, decide
from harness.text import clean

SKEWED_BELOW: Final = 20  # below, the interval of `deployed` (mass at 0) covers less than it says [own]
_INFRA_ALPHA: Final = 0.05


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


def _adjusted(contrasts: Sequence[Contrast], primary: str) -> list[float | None]:
    """Holm over the decisions with the same kind of control; None where there is only one."""
    result: list[float | None] = [None] * len(contrasts)
    by_kind: dict[str, list[int]] = defaultdict(list)
    for index, contrast in enumerate(contrasts):
        by_kind[contrast.control.kind].append(index)
    for indices in by_kind.values():
        tested = [(contrasts[i].lifts[primary], contrasts[i].placebo_lift) for i in indices]
        for index, p in zip(indices, adjusted_together(tested), strict=True):
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
    elif lift.n_families < study.minimum_families:
        why = f"too few families ({lift.n_families} of at least {study.minimum_families})"
        decision = Decision("inconclusive", why)
    else:
        decision = decide(
            lift,
            minimum_families=study.minimum_families,
            alpha=study.config.alpha,
            blocked=contrast.blocked,
            placebo=contrast.placebo_lift,
            p_adjusted=p_adjusted,
        )
    reason = decision.reason
    if study.primary.unit == "ratio":  # decided on logs, where no change is 0; the reader sees ratios
        reason = reason.replace("excludes 0", "excludes x1").replace("includes 0", "includes x1")
    return Conclusion(
        decision=decision.decision,
        metric=metric,
        reason=reason,
        p_adjusted=p_adjusted,
        alpha=study.config.alpha,
        look=look_of(study.config.alpha),
    )


def _caveats(study: Study, row: MetricRow, sides: Sequence[ArmSummary]) -> Iterable[str]:
    alpha = study.config.alpha
    if (look := look_of(alpha)) is not None:
        yield (
            f"look {look} of this skill's lineage at these tasks: decided at alpha {alpha:g}, "
            f"so that all looks together stay below 0.05"
        )
    if study.leaked:
        named = ", ".join(f"{clean(task)} ({clean(where)})" for task, where in sorted(study.leaked.items()))
        count = plural(len(study.leaked), "task")
        yield f"{count} left out, as a skill repeats the reference: {named}"
    yield from _families(row, study)
    if row.metric == "deployed" and study.minimum_families <= row.n_families < SKEWED_BELOW:
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


def _families(row: MetricRow, study: Study) -> Iterable[str]:
    """Whether the number of families leaves room for one that does not agree."""
    alpha, n = study.config.alpha, row.n_families
    if n >= study.minimum_families and 2.0 ** (2 - n) > alpha:
        yield f"{n} families: p can be at most {alpha:g} only where all {n} differ in the same direction"


def _controls(controls: Sequence[Arm], treatment: Arm) -> Sequence[Arm]:
    """Those of the treatment's delivery, where there are any: else the ways of asking differ, too."""
    return [arm for arm in controls if arm.delivery == treatment.delivery] or controls


def _pairs(config: RunConfig) -> Iterable[tuple[str, Arm, Arm, Arm | None]]:
    """Model, treatment, control, placebo; as many placebos as skills go by order, else the first serves."""
    kinds: dict[str, list[Arm]] = defaultdict(list)
    for arm in config.arms:
        kinds[arm.kind].append(arm)
    treatments, placebos = kinds["with_skill"], kinds["placebo"]
    by_order = len(placebos) == len(treatments)
    for model in config.models:
        for kind in ("without_skill", "old_skill"):
            for control in kinds[kind]:
                for index, treatment in enumerate(treatments):
                    if control in _controls(kinds[kind], treatment):
                        placebo = placebos[index if by_order else 0] if placebos else None
                        yield model.name, treatment, control, placebo


def _comparison(study: Study, contrast: Contrast, made: Conclusion) -> Comparison:
    model, primary, placebo = contrast.model, study.config.metric, contrast.placebo
    treatment = study.scores[model, contrast.treatment.id]
    control = study.scores[model, contrast.control.id]
    tested = [m.name for m in study.metrics if m.name in TESTED and m.name != primary]
    ps = [lift.p_value if (lift := contrast.lifts[name]) else None for name in tested]
    holm: dict[str, float | None] = dict(zip(tested, stats.holm(ps), strict=True))

    def row(metric: Metric, lift: stats.Lift | None, other: Sequence[Score]) -> MetricRow:
        p_holm, gap = holm.get(metric.name), study.gap(metric.name)
        return metric_row(metric, lift, treatment, other, primary=primary, p_holm=p_holm, gap=gap)

    main, checked = contrast.lifts[primary], study.check_gap is None

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
        fast_p=tuple(fast_points(treatment, control, study.confidence)) if checked else (),
        kernelbench_fast_p=(
            tuple(kernelbench_points(treatment, control, study.confidence)) if checked else ()
        ),
        placebo_row=row(study.primary, contrast.placebo_lift, placebo_scores) if placebo else None,
        infra_p=contrast.infra_p,
        conclusion=made,
        spending=spending(treatment, control, contrast.lifts["correct"], study.config.alpha),
        observed=detected(primary, main, study.config.alpha) if main else None,
        transitions=transitions(treatment, control),
        error_classes=error_classes(
            treatment,
            control,
            study.config.alpha,
            study.minimum_families,
            built=study.build_gap is None,
            checked=checked,
        ),
        passes=(
            tuple(pass_lifts(treatment, control, study.config.repeats, study.confidence)) if checked else ()
        ),
        turns=_turns(study, contrast),
        caveats=tuple(_caveats(study, next(r for r in rows if r.metric == primary), sides)),
    )


def _turns(study: Study, contrast: Contrast) -> tuple[TurnPoint, ...]:
    if study.gap(study.config.metric) is not None:
        return ()
    treatment = study.by_turn[contrast.model, contrast.treatment.id]
    control = study.by_turn[contrast.model, contrast.control.id]
    return tuple(turn_points(study.primary, treatment, control, study.confidence))


def _concluded(study: Study) -> list[tuple[Contrast, Conclusion]]:
    contrasts = [_contrast(study, *pair) for pair in _pairs(study.config)]
    adjusted = _adjusted(contrasts, study.config.metric)
    return [(c, _conclude(study, c, p)) for c, p in zip(contrasts, adjusted, strict=True)]


def conclusions(study: Study) -> tuple[Conclusion, ...]:
    """The decisions alone, in the order of `comparisons`."""
    return tuple(made for _, made in _concluded(study))


def comparisons(study: Study) -> tuple[Comparison, ...]:
    """One comparison per model, with_skill arm and control."""
    return tuple(_comparison(study, contrast, made) for contrast, made in _concluded(study))
