"""The paired lift by family, the decision about a skill, the deployed score, and the size of a study."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from harness.stats.intervals import Interval, mean_of, require, share, t_cdf, t_ppf
from harness.stats.rates import holm
from harness.stats.signflip import sign_flip


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


def deployed(speedup: float | None, correct: bool, distinguishable: bool) -> float:
    """ln max(1, speedup) where correct and distinguishably faster, else 0.

    ValueError: a correct trial without a speedup (it was not measured, which is not 0), or a speedup that is
    not finite and > 0.
    """
    require(speedup is None or 0.0 < speedup < math.inf, f"bad speedup {speedup}")
    if not correct:
        return 0.0
    if speedup is None:
        raise ValueError("a correct trial without a speedup is not measured: leave it out")
    return math.log(max(1.0, speedup)) if distinguishable else 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a skill, with the reason in words."""

    decision: Literal["helps", "hurts", "inconclusive"]
    reason: str


def adjusted_together(tested: Sequence[tuple[Lift | None, Lift | None]]) -> list[float | None]:
    """Holm-adjusted p values of decisions, each a lift and its placebo lift; None for a single decision.

    A lift that was not measured counts as a planned test.
    """
    if len(tested) < 2:
        return [None] * len(tested)
    return list(holm([_decision_p(lift, placebo) for lift, placebo in tested]))


def _decision_p(lift: Lift | None, placebo: Lift | None) -> float | None:
    """The p value of one decision; with a placebo, `helps` needs both tests, so the larger."""
    if lift is None or lift.p_value is None:
        return None
    if placebo is None or (lift.lift or 0.0) <= 0.0:
        return lift.p_value
    return None if placebo.p_value is None else max(lift.p_value, placebo.p_value)


def _differ(lift: Lift) -> str:
    """How many families differ, and the smallest possible p where some do not."""
    counts, least = f"{lift.n_different} of {lift.n_families} families differ", 2.0 ** (1 - lift.n_different)
    known = lift.n_different < lift.n_families and least >= 0.001
    return f"{counts}, so p is at least {least:.2g}" if known else counts


def _direction(lift: Lift, p: float | None, alpha: float, minimum: int, p_name: str = "p") -> tuple[int, str]:
    """+1, -1 or 0 (undecided) for one comparison, with the reason; p_name: what p is called in it."""
    require(
        math.isclose(lift.confidence, 1.0 - alpha, abs_tol=1e-9),
        f"alpha={alpha} needs an interval of confidence {1.0 - alpha}, got {lift.confidence}",
    )
    if lift.n_families < minimum:
        return 0, "too few families"
    if not lift.n_different:
        return 0, "no difference seen"
    if p is None or lift.p_value is None:
        raise ValueError("a lift that was not tested decides nothing")
    differ = _differ(lift)
    if lift.p_value > alpha:
        return 0, f"the interval includes 0, p = {lift.p_value:.3g}; {differ}"
    if p > alpha:
        return 0, f"{p_name} = {p:.3g} is above {alpha:g}; {differ}"
    return (1 if (lift.lift or 0.0) > 0.0 else -1), f"the interval excludes 0, {p_name} = {p:.3g}; {differ}"


def decide(
    lift: Lift,
    *,
    minimum_families: int = 6,
    alpha: float = 0.05,
    blocked: str | None = None,
    placebo: Lift | None = None,
    p_adjusted: float | None = None,
) -> Decision:
    """Decide on one metric that was fixed before the run: the sign-flip test at level alpha.

    lift: with_skill minus without_skill. placebo: with_skill minus placebo, which `helps` must beat too; both
    tests must pass, so the pair needs no correction. p_adjusted: replaces lift.p_value. blocked: why no
    decision may be made. ValueError: a confidence other than 1 - alpha, a lift without a p value, p_adjusted
    outside [0, 1] or below the raw p.
    """
    p = lift.p_value
    if p_adjusted is not None:
        require((p or 0.0) <= p_adjusted <= 1.0, f"p_adjusted={p_adjusted} must lie in [p, 1]")
        p = p_adjusted
    p_name = "p" if p == lift.p_value else "adjusted p"
    side, reason = _direction(lift, p, alpha, minimum_families, p_name)
    if blocked is not None and lift.n_families >= minimum_families:
        side, reason = 0, blocked
    if side > 0 and placebo is not None:
        beats, why = _direction(placebo, placebo.p_value, alpha, minimum_families)
        side = max(0, beats)
        reason += ", also against the placebo" if side else f"; against the placebo: {why}"
    return Decision("helps" if side > 0 else "hurts" if side < 0 else "inconclusive", reason)


# How large a study must be: the two-sided t approximation to the sign-flip test over families (Armitage and
# Berry, ch. 6). With up to about 12 families the exact test finds up to 5 points less; from 15 up both agree
# within 2 points. `sd` is the standard deviation between families.


def fewest_families(alpha: float = 0.05) -> int:
    """Families below which no result can be significant: the smallest p, 2 / 2^n, is above alpha."""
    return math.ceil(math.log2(2.0 / share(alpha, "alpha")))


def power_to_detect(effect: float, sd: float, n_families: int, alpha: float = 0.05) -> float:
    """Chance that n_families detect a true mean of effect, in the units of sd; 0 below `fewest_families`.

    With exactly the fewest families all must agree, which for normal differences has the chance
    Phi(effect / sd)^n; the smaller of both figures counts.
    """
    require(min(effect, sd) > 0.0 and n_families >= 2, f"effect and sd must be above 0: {effect=}, {sd=}")
    fewest, df = fewest_families(alpha), n_families - 1
    if n_families < fewest:
        return 0.0
    power = t_cdf(effect * math.sqrt(n_families) / sd - t_ppf(1.0 - alpha / 2.0, df), df)
    return min(power, NormalDist().cdf(effect / sd) ** n_families) if n_families == fewest else power


def smallest_effect(sd: float, n_families: int, power: float = 0.8, alpha: float = 0.05) -> float | None:
    """The effect that is detected with this power; None below `fewest_families`."""
    require(sd > 0.0 and n_families >= 2, f"sd must be above 0: {sd=}")
    fewest, df = fewest_families(alpha), n_families - 1
    quantiles = t_ppf(1.0 - alpha / 2.0, df) + t_ppf(share(power, "power"), df)
    if n_families < fewest:
        return None
    effect = quantiles * sd / math.sqrt(n_families)
    unanimous = sd * NormalDist().inv_cdf(power ** (1.0 / n_families))
    return max(effect, unanimous) if n_families == fewest else effect


def families_needed(effect: float, sd: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Fewest families that detect effect with this power."""
    share(power, "power")
    low = high = fewest_families(alpha)
    while power_to_detect(effect, sd, high, alpha) < power:
        low, high = high + 1, 2 * high
    while low < high:
        middle = (low + high) // 2
        enough = power_to_detect(effect, sd, middle, alpha) >= power
        low, high = (low, middle) if enough else (middle + 1, high)
    return low
