"""The decision rule: does a skill help, hurt, or neither; with Holm's adjustment for several decisions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.stats.base import require
from harness.stats.lift import Lift


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a skill, with the reason in words."""

    decision: Literal["helps", "hurts", "inconclusive"]
    reason: str


def holm(p_values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Step-down adjusted p values, in the given order. Holm (1979), Scand. J. Stat. 6, 65-70.

    A None (not computable) stays None but still counts as a planned test, as if its p were 1.
    """
    known = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    require(all(0.0 <= p <= 1.0 for p, _ in known), "holm: p values must lie in [0, 1]")
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, index) in enumerate(known):
        running = max(running, min(1.0, (len(p_values) - rank) * p))
        adjusted[index] = running
    return tuple(adjusted)


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
