"""The estimate of the lift: treatment minus control, paired by task and averaged by family."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.stats.base import Interval, mean_of, require, share
from harness.stats.lift_interval import sign_flip


@dataclass(frozen=True, slots=True)
class Observation:
    """One scored repeat of a task in one arm (`control` is the arm that is subtracted)."""

    family: str
    task: str
    arm: Literal["treatment", "control"]
    value: float


@dataclass(frozen=True, slots=True)
class Lift:
    """Treatment minus control, in the units of the values; means are None without any pair.

    per_family: (family, difference) by family name; per_task: (family, task, difference). n_dropped_tasks:
    tasks without a value in both arms. n_different: families whose difference is not 0; the p value is at
    least 2^(1 - n_different).
    """

    mean_with: float | None
    mean_without: float | None
    lift: float | None
    interval: Interval | None
    p_value: float | None
    n_families: int
    n_tasks: int
    n_dropped_tasks: int
    per_family: tuple[tuple[str, float], ...]
    confidence: float = 0.95
    n_different: int = 0
    per_task: tuple[tuple[str, str, float], ...] = ()


def _task_means(observations: Sequence[Observation]) -> tuple[dict[str, dict[str, tuple[float, float]]], int]:
    """(with, without) means of each task that has both arms, by family; and the tasks dropped."""
    repeats: dict[tuple[str, str], dict[str, list[float]]] = {}
    family_of: dict[str, str] = {}
    for seen in observations:
        require(math.isfinite(seen.value), f"{seen.task}: value must be finite")
        require(seen.arm in ("treatment", "control"), f"{seen.task}: unknown arm {seen.arm!r}")
        known = family_of.setdefault(seen.task, seen.family)
        require(known == seen.family, f"{seen.task}: in two families, {known} and {seen.family}")
        arms = repeats.setdefault((seen.family, seen.task), {"treatment": [], "control": []})
        arms[seen.arm].append(seen.value)
    by_family: dict[str, dict[str, tuple[float, float]]] = {}
    for (family, task), arms in sorted(repeats.items()):
        if arms["treatment"] and arms["control"]:
            pair = (mean_of(arms["treatment"]), mean_of(arms["control"]))
            by_family.setdefault(family, {})[task] = pair
    return by_family, len(repeats) - sum(map(len, by_family.values()))


def paired_lift(
    observations: Sequence[Observation],
    confidence: float = 0.95,
    *,
    shares: bool = False,
    tested: bool = True,
) -> Lift:
    """Lift paired by task, with the sign-flip test by family and the interval that inverts it.

    Repeats are averaged in a task and arm, tasks in a family; every family has equal weight. shares: values
    lie in 0..1, so no limit lies beyond 1. Interval None: fewer than 6 families, too few for this
    confidence, or every difference is 0; p None: n_families < 2 or not tested. ValueError: a value that is
    not finite or not a share, an unknown arm, a task in two families, confidence outside (0.5, 1).
    """
    share(confidence, "confidence")
    require(
        not shares or all(0.0 <= seen.value <= 1.0 for seen in observations),
        "paired_lift: shares lie in 0..1",
    )
    by_family, dropped = _task_means(observations)
    n, n_tasks = len(by_family), sum(map(len, by_family.values()))
    if n == 0:
        return Lift(None, None, None, None, None, 0, 0, dropped, (), confidence)
    with_means = [mean_of([a for a, _ in tasks.values()]) for tasks in by_family.values()]
    without_means = [mean_of([b for _, b in tasks.values()]) for tasks in by_family.values()]
    differences = [a - b for a, b in zip(with_means, without_means, strict=True)]
    scale = max(map(abs, with_means + without_means))
    made = sign_flip(differences, confidence, scale=scale, bound=1.0 if shares else None)
    return Lift(
        mean_with=mean_of(with_means),
        mean_without=mean_of(without_means),
        lift=mean_of(differences),
        interval=made.interval,
        p_value=made.p_value if tested and n > 1 else None,
        n_families=n,
        n_tasks=n_tasks,
        n_dropped_tasks=dropped,
        per_family=tuple(zip(by_family, differences, strict=True)),
        confidence=confidence,
        n_different=made.n_different,
        per_task=tuple(
            (family, task, a - b) for family, tasks in by_family.items() for task, (a, b) in tasks.items()
        ),
    )
