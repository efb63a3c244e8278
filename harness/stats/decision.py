"""The conclusion about a skill: helps, hurts or inconclusive.

The decision is the sign-flip test: p of at most alpha, in enough families. The interval inverts that test,
so it excludes no change exactly where the unadjusted p is at most alpha.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.stats import Lift, holm


@dataclass(frozen=True, slots=True)
class Decision:
    """The conclusion about a skill and the rule that led to it, in words."""

    decision: Literal["helps", "hurts", "inconclusive"]
    reason: str


def adjusted_together(tested: Sequence[tuple[Lift | None, Lift | None]]) -> list[float | None]:
    """Holm over decisions that are made together, each a lift and its placebo lift; None where only one is.

    A lift that was not measured counts as a planned test.
    """
    if len(tested) < 2:
        return [None] * len(tested)
    return list(holm([_decision_p(lift, placebo) for lift, placebo in tested]))


def _decision_p(lift: Lift | None, placebo: Lift | None) -> float | None:
    """The p value that stands for the whole decision: with a placebo, `helps` needs both tests."""
    if lift is None or lift.p_value is None:
        return None
    if placebo is None or (lift.lift or 0.0) <= 0.0:
        return lift.p_value
    return None if placebo.p_value is None else max(lift.p_value, placebo.p_value)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _differ(lift: Lift) -> str:
    """How many families differ, and the least p that they leave possible where some do not."""
    said, least = f"{lift.n_different} of {lift.n_families} families differ", 2.0 ** (1 - lift.n_different)
    known = lift.n_different < lift.n_families and least >= 0.001
    return f"{said}, so p is at least {least:.2g}" if known else said


def _direction(lift: Lift, p: float | None, alpha: float, minimum: int, said: str = "p") -> tuple[int, str]:
    """+1, -1 or 0 (undecided) for one comparison, with the reason; said: what p is called in it."""
    _require(
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
        return 0, f"{said} = {p:.3g} is above {alpha:g}; {differ}"
    return (1 if (lift.lift or 0.0) > 0.0 else -1), f"the interval excludes 0, {said} = {p:.3g}; {differ}"


def decide(
    lift: Lift,
    *,
    minimum_families: int = 6,
    alpha: float = 0.05,
    blocked: str | None = None,
    placebo: Lift | None = None,
    p_adjusted: float | None = None,
) -> Decision:
    """Conclude on one metric fixed before the run (DESIGN.md, Statistics).

    lift: with_skill minus without_skill; placebo: with_skill minus placebo, which `helps` must
    beat too (both tests must pass, so the pair needs no correction; under Holm, adjust the larger
    of the two p values). p_adjusted replaces lift.p_value. blocked: a reason why no decision may
    be made. ValueError: an interval whose confidence is not 1 - alpha, a lift without a p value, p_adjusted
    outside [0, 1] or below the raw p, minimum_families < 2.
    """
    _require(0.0 < alpha < 1.0, f"alpha must be between 0 and 1, got {alpha}")
    _require(minimum_families >= 2, f"minimum_families must be at least 2, got {minimum_families}")
    p = lift.p_value
    if p_adjusted is not None:
        _require((p or 0.0) <= p_adjusted <= 1.0, f"p_adjusted={p_adjusted} must lie in [p, 1]")
        p = p_adjusted
    said = "p" if p == lift.p_value else "adjusted p"
    side, reason = _direction(lift, p, alpha, minimum_families, said)
    if blocked is not None and lift.n_families >= minimum_families:
        side, reason = 0, blocked
    if side > 0 and placebo is not None:
        beats, why = _direction(placebo, placebo.p_value, alpha, minimum_families)
        side = max(0, beats)
        reason += ", also against the placebo" if side else f"; against the placebo: {why}"
    return Decision("helps" if side > 0 else "hurts" if side < 0 else "inconclusive", reason)
