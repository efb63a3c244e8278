"""The metrics of a lift: what each one reads off an arm's scored trials.

A trial that a metric was not measured on contributes no value.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from harness import stats
from harness.report.records import MetricName, Unit
from harness.report.scoring import Score

Value = tuple[str, str, float]
"""Family, task, value."""
THRESHOLDS: Final = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
TESTED: Final = ("compiles", "correct", "deployed", "speedup_both_correct", "pass_at_k", "pass_hat_k")
"""pass@1 is missing: it is `correct` under another name, and one test should not count twice."""


@dataclass(frozen=True)
class Metric:
    """A metric; shares stay as they are, ratios are handled as natural logs."""

    name: MetricName
    label: str
    unit: Unit
    values: Callable[[Sequence[Score]], Iterable[Value]]

    def lift(
        self,
        treatment: Sequence[Score],
        control: Sequence[Score],
        confidence: float = 0.95,
        *,
        tested: bool = True,
    ) -> stats.Lift:
        """The paired lift of treatment over control; a p value only where it is tested."""
        seen = observations(self.values, treatment, control)
        return stats.paired_lift(seen, confidence, shares=self.unit == "share", tested=tested)


def observations(
    values: Callable[[Sequence[Score]], Iterable[Value]], treatment: Sequence[Score], control: Sequence[Score]
) -> list[stats.Observation]:
    """The values of both arms."""
    seen: list[stats.Observation] = []
    side: Literal["treatment", "control"]
    for side, scores in (("treatment", treatment), ("control", control)):
        seen += [stats.Observation(family, task, side, value) for family, task, value in values(scores)]
    return seen


def out(unit: Unit, value: float) -> float:
    """From the scale of inference to the reader's: logs become ratios."""
    return value if unit == "share" else math.exp(value)


def by_trial(get: Callable[[Score], float | None]) -> Callable[[Sequence[Score]], Iterable[Value]]:
    """One value per trial that has one."""

    def values(scores: Sequence[Score]) -> Iterable[Value]:
        for score in scores:
            value = get(score)
            if value is not None:
                yield score.family, score.task, float(value)

    return values


def _by_task(
    k: int, estimate: Callable[[int, int, int], float]
) -> Callable[[Sequence[Score]], Iterable[Value]]:
    """One value per task with at least k scored replies."""

    def values(scores: Sequence[Score]) -> Iterable[Value]:
        tasks: dict[tuple[str, str], list[bool]] = defaultdict(list)
        for score in scores:
            if score.correct is not None:
                tasks[score.family, score.task].append(score.correct)
        for (family, task), results in tasks.items():
            if len(results) >= k:
                yield family, task, estimate(len(results), sum(results), k)

    return values


def flag_metric(get: Callable[[Score], float | None]) -> Metric:
    """A share of trials that has no row of its own."""
    return Metric("correct", "", "share", by_trial(get))


def pass_metric(k: int, estimator: Callable[[int, int, int], float]) -> Metric:
    """pass@k or pass^k for any k."""
    return Metric("pass_at_k", "", "share", _by_task(k, estimator))


def family_means(values: Iterable[Value]) -> list[float]:
    """Values of one arm, averaged by task and then by family."""
    tasks: dict[tuple[str, str], list[float]] = defaultdict(list)
    for family, task, value in values:
        tasks[family, task].append(value)
    means: dict[str, list[float]] = defaultdict(list)
    for (family, _), found in sorted(tasks.items()):
        means[family].append(math.fsum(found) / len(found))
    return [math.fsum(found) / len(found) for found in means.values()]


def fast_values(threshold: float) -> Callable[[Sequence[Score]], Iterable[Value]]:
    """1 for a trial that is correct and faster than threshold, else 0."""

    def fast(score: Score) -> float | None:
        if score.correct is None:
            return None
        return float(score.speedup is not None and score.speedup > threshold)

    return by_trial(fast)


def per_task_lifts(metric: Metric, a: Sequence[Score], b: Sequence[Score]) -> Iterable[Value]:
    """Family, task and difference a - b of every task with a value in both."""
    sides: list[dict[tuple[str, str], list[float]]] = []
    for scores in (a, b):
        values: dict[tuple[str, str], list[float]] = defaultdict(list)
        for family, task, value in metric.values(scores):
            values[family, task].append(value)
        sides.append(values)
    for family, task in sorted(sides[0].keys() & sides[1].keys()):
        with_, without = sides[0][family, task], sides[1][family, task]
        yield family, task, math.fsum(with_) / len(with_) - math.fsum(without) / len(without)


def metrics_for(repeats: int) -> tuple[Metric, ...]:
    """All metrics of a run, in the order in which they are shown."""
    once = (
        Metric("compiles", "compiles", "share", by_trial(lambda s: s.compiled)),
        Metric("correct", "correct", "share", by_trial(lambda s: s.correct)),
        Metric("deployed", "deployed", "ratio", by_trial(lambda s: s.deployed)),
        Metric(
            "speedup_both_correct",
            "speedup where both correct",
            "ratio",
            by_trial(lambda s: s.log_speedup),
        ),
        Metric("pass_at_1", "pass@1", "share", _by_task(1, stats.pass_at_k)),
    )
    if repeats == 1:
        return once
    return (
        *once,
        Metric("pass_at_k", f"pass@{repeats}", "share", _by_task(repeats, stats.pass_at_k)),
        Metric("pass_hat_k", f"pass^{repeats}", "share", _by_task(repeats, stats.pass_hat_k)),
    )
