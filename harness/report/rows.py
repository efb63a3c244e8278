"""Metric rows: one paired lift, in the reader's units, with its families and tasks.

An unmeasured row holds no figure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from harness import stats
from harness.report.metrics import TESTED, THRESHOLDS, Metric, fast_values, out, pass_metric, per_task_lifts
from harness.report.records import FamilyLift, FastPoint, Gap, KernelBenchPoint, MetricRow, PassLift, TaskLift
from harness.report.scoring import Score


def _families(
    metric: Metric, lift: stats.Lift, treatment: Sequence[Score], control: Sequence[Score]
) -> Iterable[FamilyLift]:
    tasks: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for family, task, difference in per_task_lifts(metric, treatment, control):
        tasks[family].append((task, difference))
    for family, difference in lift.per_family:
        yield FamilyLift(
            family=family,
            lift=out(metric.unit, difference),
            tasks=tuple(TaskLift(task=t, lift=out(metric.unit, v)) for t, v in tasks[family]),
        )


def metric_row(
    metric: Metric,
    lift: stats.Lift | None,
    treatment: Sequence[Score],
    control: Sequence[Score],
    *,
    primary: str,
    p_holm: float | None,
    gap: Gap | None,
) -> MetricRow:
    """The row of one metric; lift is None exactly when gap says why it was not measured."""
    role: Literal["primary", "secondary", "descriptive"] = (
        "primary" if metric.name == primary else "secondary" if metric.name in TESTED else "descriptive"
    )
    lift = lift or stats.paired_lift([])

    def shown(value: float | None) -> float | None:
        return None if value is None else out(metric.unit, value)

    return MetricRow(
        metric=metric.name,
        label=metric.label,
        unit=metric.unit,
        role=role,
        control=shown(lift.mean_without),
        treatment=shown(lift.mean_with),
        lift=shown(lift.lift),
        low=shown(lift.interval.low if lift.interval else None),
        high=shown(lift.interval.high if lift.interval else None),
        p_value=None if role == "descriptive" else lift.p_value,
        p_holm=p_holm,
        n_families=lift.n_families,
        n_different=lift.n_different,
        n_tasks=lift.n_tasks,
        n_dropped_tasks=lift.n_dropped_tasks,
        per_family=tuple(_families(metric, lift, treatment, control)) if lift.n_families else (),
        not_measured=gap.reason if gap else None,
    )


def fast_points(
    treatment: Sequence[Score], control: Sequence[Score], confidence: float
) -> Iterable[FastPoint]:
    """The fast_p curve of both arms; nothing without a task in both."""
    for threshold in THRESHOLDS:
        metric = Metric("correct", "", "share", fast_values(threshold))
        lift = metric.lift(treatment, control, confidence, tested=False)
        if lift.lift is None or lift.mean_with is None or lift.mean_without is None:
            return
        yield FastPoint(
            threshold=threshold,
            control=lift.mean_without,
            treatment=lift.mean_with,
            lift=lift.lift,
            low=lift.interval.low if lift.interval else None,
            high=lift.interval.high if lift.interval else None,
        )


def kernelbench_points(
    treatment: Sequence[Score], control: Sequence[Score], confidence: float
) -> Iterable[KernelBenchPoint]:
    """fast_p of both arms by KernelBench's own rules, and by ours over the same trials.

    Nothing where an arm has no problem of theirs.
    """
    arms = [[s for s in scores if s.kernelbench is not None] for scores in (control, treatment)]
    if not all(arms):
        return
    shares = [stats.fast_p([s.kernelbench or None for s in arm], THRESHOLDS) for arm in arms]
    ours = {point.threshold: point for point in fast_points(arms[1], arms[0], confidence)}
    for threshold, without, with_ in zip(THRESHOLDS, *shares, strict=True):
        yield KernelBenchPoint(
            threshold=threshold, control=without, treatment=with_, ours=ours.get(threshold)
        )


def pass_lifts(
    treatment: Sequence[Score], control: Sequence[Score], repeats: int, confidence: float
) -> Iterable[PassLift]:
    """pass@k and pass^k of both arms for every k up to repeats that a task in both arms has."""
    estimators: dict[Literal["pass@k", "pass^k"], Callable[[int, int, int], float]]
    estimators = {"pass@k": stats.pass_at_k, "pass^k": stats.pass_hat_k}
    for k in range(1, repeats + 1):
        for name, estimator in estimators.items():
            lift = pass_metric(k, estimator).lift(treatment, control, confidence, tested=False)
            if lift.lift is None or lift.mean_with is None or lift.mean_without is None:
                return
            yield PassLift(
                estimator=name,
                k=k,
                control=lift.mean_without,
                treatment=lift.mean_with,
                lift=lift.lift,
                low=lift.interval.low if lift.interval else None,
                high=lift.interval.high if lift.interval else None,
                n_tasks=lift.n_tasks,
            )
