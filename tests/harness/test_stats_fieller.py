"""The interval of a ratio of paired means: by its definition, its limits, and its coverage."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from harness import stats

X = (3.0, 1.0, 4.0, 2.0, 5.0, 2.5)
Y = (1.0, 0.5, 1.5, 0.5, 2.0, 1.5)


def test_each_end_is_where_the_t_test_turns() -> None:
    """At a bound r the mean of x - r y is exactly as far from 0 as Student's t allows."""
    found = stats.paired_ratio(X, Y)
    assert found is not None and found.interval is not None and not found.unbounded
    assert found.ratio == pytest.approx(2.5)
    assert found.interval.low < found.ratio < found.interval.high
    for end in (found.interval.low, found.interval.high):
        tested = stats.mean_interval([x - end * y for x, y in zip(X, Y, strict=True)])
        assert tested.p_value == pytest.approx(0.05)


def test_a_denominator_that_may_be_nothing_has_no_finite_interval() -> None:
    """Its own interval includes 0: the ratio stands, and says that it has no end."""
    found = stats.paired_ratio(X, (1.0, 0.0, 1.0, 0.0, 1.0, 0.0))
    assert found is not None
    assert (found.ratio, found.interval, found.unbounded) == (pytest.approx(17.5 / 3), None, True)


@pytest.mark.parametrize("y", [(1.0,) * 6, (0.0,) * 6, (1.0, -1.0) * 3])
def test_without_spread_or_mean_there_is_no_ratio_to_bound(y: tuple[float, ...]) -> None:
    """All families alike, or no gain: nothing to rest an interval on."""
    assert stats.paired_ratio(X, y) is None


def test_numerators_that_follow_exactly_give_no_interval_of_zero_width() -> None:
    """x = 2 y in every family: the ratio is 2, and there is no interval."""
    found = stats.paired_ratio([2.0 * y for y in Y], Y)
    assert found is not None
    assert (found.ratio, found.interval, found.unbounded) == (pytest.approx(2.0), None, False)


def test_a_sign_changes_with_the_numerators_and_not_with_the_units() -> None:
    """What is saved is a negative price with mirrored ends; cents are dollars times 100."""
    whole = stats.paired_ratio(X, Y)
    saved = stats.paired_ratio([-100.0 * x for x in X], Y)
    assert whole is not None and whole.interval is not None
    assert saved is not None and saved.interval is not None
    assert saved.interval.low == pytest.approx(-100.0 * whole.interval.high)
    assert saved.interval.high == pytest.approx(-100.0 * whole.interval.low)


def test_bad_input_is_refused() -> None:
    """Pairs, and finite ones."""
    with pytest.raises(ValueError, match="6 numerators and 2 denominators"):
        stats.paired_ratio(X, (1.0, 2.0))
    with pytest.raises(ValueError, match="must be finite"):
        stats.paired_ratio((1.0, math.inf), (1.0, 2.0))


@pytest.mark.parametrize(("families", "gain"), [(10, 0.3), (25, 0.2)])
def test_the_interval_holds_the_true_price_as_often_as_it_says(
    families: int, gain: float, record_property: Callable[[str, object], None]
) -> None:
    """2,000 studies with costs that rise with the gain: 95% within 1.5 points; 'no end' holds it."""
    rng = np.random.default_rng(21)
    held, ended = 0, 0
    for _ in range(2_000):
        y = rng.normal(gain, 0.25, families)
        x = 0.02 + 0.05 * (y - gain) + rng.normal(0.0, 0.01, families)
        found = stats.paired_ratio(x.tolist(), y.tolist())
        assert found is not None
        ended += not found.unbounded
        held += found.interval is None or found.interval.low <= 0.02 / gain <= found.interval.high
    record_property(f"Fieller interval holds the price, {families} families", held / 2_000)
    assert held / 2_000 == pytest.approx(0.95, abs=0.015)
    assert ended > 1_000  # most of them are finite, so that the share says something
