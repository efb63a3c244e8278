"""Model by model, with_skill against its controls: metric rows, adjusted p values, decisions.

Owns: which observations enter which row, and which tests are adjusted together. Does not own: the
formulas (harness.stats) or what a trial counts for (scoring.py). Invariant: the decision rests on
the metric fixed before the run; if that one was not measured, the decision is inconclusive.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from harness import stats
from harness.records import Arm, RunConfig
from harness.report.metrics import METRICS, TESTED, THRESHOLDS, Metric, fast_values, out, per_task_lifts
from harness.report.records import (
    ArmSummary,
    Comparison,
    Conclusion,
    FamilyLift,
    FastPoint,
    Gap,
    MetricRow,
    TaskLift,
)
from harness.report.scoring import Score

INFRA_ALPHA: Final = 0.05
SKEWED_BELOW: Final = 20  # under 20 families the t interval of `deployed` covers less than it says [own]
_INTERVAL_TASKS: Final = 3  # two tasks give an interval of 12.7 standard errors: no use to anyone

Scores = Mapping[tuple[str, str], Sequence[Score]]
"""By model and arm."""


@dataclass(frozen=True)
class Contrast:
    """One pair of arms on every metric; a metric that was not measured has no lift."""

    model: str
    treatment: Arm
    control: Arm
    placebo: Arm | None
    lifts: Mapping[str, stats.Lift | None]
    placebo_lift: stats.Lift | None
    infra_p: float
    blocked: str | None


def _families(
    metric: Metric, lift: stats.Lift, a: Sequence[Score], b: Sequence[Score]
) -> Iterable[FamilyLift]:
    tasks: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for family, task, difference in per_task_lifts(metric, a, b):
        tasks[family].append((task, difference))
    for family, difference in lift.per_family:
        values = [value for _, value in tasks[family]]
        interval = stats.mean_interval(values).interval if len(values) >= _INTERVAL_TASKS else None
        yield FamilyLift(
            family=family,
            lift=out(metric.unit, difference),
            low=None if interval is None else out(metric.unit, interval.low),
            high=None if interval is None else out(metric.unit, interval.high),
            tasks=tuple(TaskLift(task=t, lift=out(metric.unit, v)) for t, v in tasks[family]),
        )


def _row(
    metric: Metric,
    lift: stats.Lift | None,
    arms: tuple[Sequence[Score], Sequence[Score]],
    *,
    primary: str,
    p_holm: float | None,
    gap: Gap | None,
) -> MetricRow:
    role: Literal["primary", "secondary", "descriptive"] = (
        "primary" if metric.name == primary else "secondary" if metric.name in TESTED else "descriptive"
    )
    lift = lift or stats.paired_lift([])
    values = {
        "control": lift.mean_without,
        "treatment": lift.mean_with,
        "lift": lift.lift,
        "low": lift.interval and lift.interval.low,
        "high": lift.interval and lift.interval.high,
    }
    return MetricRow(
        metric=metric.name,
        label=metric.label,
        unit=metric.unit,
        role=role,
        **{name: None if v is None else out(metric.unit, v) for name, v in values.items()},
        p_value=None if role == "descriptive" else lift.p_value,
        p_holm=p_holm,
        n_families=lift.n_families,
        n_tasks=lift.n_tasks,
        n_dropped_tasks=lift.n_dropped_tasks,
        per_family=tuple(_families(metric, lift, *arms)),
        not_measured=gap.reason if gap else None,
    )


def _contrast(
    model: str,
    arms: tuple[Arm, Arm, Arm | None],
    scores: Scores,
    metrics: Sequence[Metric],
    primary: str,
    gap_of: Mapping[str, Gap | None],
    summaries: Mapping[tuple[str, str], ArmSummary],
) -> Contrast:
    treatment, control, placebo = arms
    a, b = scores[model, treatment.id], scores[model, control.id]
    main = next(m for m in metrics if m.name == primary)
    placebo_lift = None
    if placebo is not None and gap_of[primary] is None:
        placebo_lift = main.lift(a, scores[model, placebo.id])
    compared = [summaries[model, arm.id] for arm in arms if arm is not None]
    first = compared[0]
    ps = [
        stats.fisher_exact(
            first.infra_trials, first.scored, other.infra_trials, other.scored
        )
        for other in compared[1:]
    ]
    blocked = f"infra rates differ between arms (p = {min(ps):.3g})" if min(ps) < INFRA_ALPHA else None
    return Contrast(
        model=model,
        treatment=treatment,
        control=control,
        placebo=placebo,
        lifts={m.name: None if gap_of[m.name] else m.lift(a, b) for m in metrics},
        placebo_lift=placebo_lift,
        infra_p=ps[0],
        blocked=blocked,
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


def adjusted(contrasts: Sequence[Contrast], primary: str) -> list[float | None]:
    """Holm over the decisions with the same kind of control, where there are several."""
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


def _conclude(contrast: Contrast, config: RunConfig, p_adjusted: float | None, gap: Gap | None) -> Conclusion:
    lift = contrast.lifts[config.metric]
    if lift is None:
        why = gap.reason if gap else "unknown"
        decision = stats.Decision("inconclusive", f"{config.metric} was not measured: {why}")
    elif not lift.n_families:
        decision = stats.Decision("inconclusive", "no task has a scored trial in both arms")
    else:
        decision = stats.decide(
            lift, blocked=contrast.blocked, placebo=contrast.placebo_lift, p_adjusted=p_adjusted
        )
    reason = decision.reason
    if config.metric == "deployed":  # the decision is made on logs, the reader sees ratios
        reason = reason.replace("the interval excludes 0", "the interval excludes x1")
        reason = reason.replace("the interval includes 0", "the interval includes x1")
    if reason.startswith("too few families"):
        reason = f"too few families ({lift.n_families if lift else 0} of at least 6)"
    return Conclusion(
        decision=decision.decision, metric=config.metric, reason=reason, p_adjusted=p_adjusted
    )


def _caveats(rows: Sequence[MetricRow], primary: str, sides: Sequence[ArmSummary]) -> Iterable[str]:
    row = next(r for r in rows if r.metric == primary)
    if row.not_measured is None and row.n_families:
        if primary == "deployed" and 6 <= row.n_families < SKEWED_BELOW:
            yield f"{row.n_families} families: under {SKEWED_BELOW}, deployed is skewed and its interval approximate"
        if row.n_dropped_tasks:
            yield f"{row.n_dropped_tasks} tasks without a scored trial in both arms are left out"
        if row.n_families > 1 and row.low is None:
            yield "every family shows the same difference, so no interval can be computed"
    owed = sum(side.planned - side.scored - side.infra_trials for side in sides)
    if owed:
        yield f"{owed} planned trials of these arms are owed: the decision may change"
    noisy = sum(side.noisy for side in sides)
    if noisy:
        yield f"{noisy} speedups were timed on a noisy host: counted here, never ranked"


def _placebo_of(index: int, treatments: Sequence[Arm], placebos: Sequence[Arm]) -> Arm | None:
    """One placebo serves every skill; as many as skills go by order."""
    if not placebos:
        return None
    return placebos[index] if len(placebos) == len(treatments) else placebos[0]


def _pairs(config: RunConfig) -> Iterable[tuple[str, Arm, Arm, Arm | None]]:
    kinds: dict[str, list[Arm]] = defaultdict(list)
    for arm in config.arms:
        kinds[arm.kind].append(arm)
    treatments = kinds["with_skill"]
    for model in config.models:
        for control in kinds["without_skill"] + kinds["old_skill"]:
            for index, treatment in enumerate(treatments):
                yield model.name, treatment, control, _placebo_of(index, treatments, kinds["placebo"])


def compare_arms(
    config: RunConfig,
    scores: Scores,
    summaries: Mapping[tuple[str, str], ArmSummary],
    build_gap: Gap | None,
    check_gap: Gap | None,
) -> tuple[Comparison, ...]:
    """One comparison per model, with_skill arm and control."""
    metrics = [metric(config.repeats) for metric in METRICS]
    if config.repeats == 1:
        metrics = [m for m in metrics if m.name not in ("pass_at_k", "pass_hat_k")]
    gap_of = {m.name: build_gap if m.name == "compiles" else check_gap for m in metrics}
    primary = config.metric
    contrasts = [
        _contrast(model, (a, b, placebo), scores, metrics, primary, gap_of, summaries)
        for model, a, b, placebo in _pairs(config)
    ]
    made = []
    for contrast, p_adjusted in zip(contrasts, adjusted(contrasts, primary), strict=True):
        model, placebo = contrast.model, contrast.placebo
        a, b = scores[model, contrast.treatment.id], scores[model, contrast.control.id]
        tested = [m.name for m in metrics if m.name in TESTED and m.name != primary]
        ps = [lift.p_value if (lift := contrast.lifts[name]) else None for name in tested]
        holm = dict(zip(tested, stats.holm(ps), strict=True))
        rows = tuple(
            _row(
                m, contrast.lifts[m.name], (a, b), primary=primary, p_holm=holm.get(m.name), gap=gap_of[m.name]
            )
            for m in metrics
        )
        main = next(m for m in metrics if m.name == primary)
        placebo_row = placebo and _row(
            main, contrast.placebo_lift, (a, scores[model, placebo.id]),
            primary=primary, p_holm=None, gap=gap_of[primary],
        )
        sides = [summaries[model, contrast.treatment.id], summaries[model, contrast.control.id]]
        made.append(
            Comparison(
                model=model,
                treatment=contrast.treatment.id,
                control=contrast.control.id,
                placebo=placebo.id if placebo else None,
                label=sides[0].label,
                control_label=sides[1].label,
                rows=rows,
                fast_p=() if check_gap else tuple(_fast_points(a, b)),
                placebo_row=placebo_row,
                infra_p=contrast.infra_p,
                conclusion=_conclude(contrast, config, p_adjusted, gap_of[primary]),
                caveats=tuple(_caveats(rows, primary, sides)),
            )
        )
    return tuple(made)


def _fast_points(a: Sequence[Score], b: Sequence[Score]) -> Iterable[FastPoint]:
    for threshold in THRESHOLDS:
        lift = Metric("correct", "", "share", fast_values(threshold)).lift(a, b)
        if lift.lift is None or lift.mean_with is None or lift.mean_without is None:
            return
        yield FastPoint(
            threshold=threshold,
            control=lift.mean_without,
            treatment=lift.mean_with,
            lift=lift.lift,
            low=lift.interval and lift.interval.low,
            high=lift.interval and lift.interval.high,
        )
