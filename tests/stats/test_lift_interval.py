"""The sign-flip interval against a brute-force inversion of the test, its limits, and the ratio of means."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import stats
from harness.stats.lift_interval import SignFlip

_ALPHAS = (0.05, 0.025, 0.00625, 0.0625, 0.2)
"""0.0625 is a p value that 6 families can have."""
_TENTHS = st.lists(st.integers(-10, 10), min_size=6, max_size=9)
_SPARSE = st.lists(st.sampled_from((-10, 0, 0, 0, 5, 10)), min_size=6, max_size=9)


def _p(values: list[Fraction], mean: Fraction) -> Fraction:
    """Two-sided sign-flip p of one mean: by its definition, in exact arithmetic."""
    centred = [value - mean for value in values]
    seen = abs(sum(centred))
    flips = itertools.product((1, -1), repeat=len(values))
    extreme = sum(abs(sum(s * x for s, x in zip(signs, centred, strict=True))) >= seen for signs in flips)
    return Fraction(extreme, 2 ** len(values))


def _fractions(values: list[int]) -> list[Fraction]:
    return [Fraction(value, 10) for value in values]


@settings(max_examples=60, deadline=None)
@given(values=_TENTHS | _SPARSE, alpha=st.sampled_from(_ALPHAS))
def test_p_and_interval_are_those_of_the_definition(values: list[int], alpha: float) -> None:
    """p is the count over all sign patterns; an interval excludes 0 exactly where p <= alpha, ties and zeros
    included, and exists from 6 families up where any p can be so small."""
    exact = _fractions(values)
    expected = _p(exact, Fraction(0))
    for bound in (None, 1.0):
        found = stats.sign_flip([float(value) for value in exact], 1.0 - alpha, bound=bound)
        assert found.p_value == float(expected)
        assert found.n_different == sum(value != 0 for value in values)
        if found.n_different:
            assert found.p_value >= 2.0 ** (1 - found.n_different)
        possible = any(values) and Fraction(2, 2 ** len(values)) <= Fraction(alpha)
        assert (found.interval is not None) == possible
        if found.interval is not None:
            outside = found.interval.low > 0.0 or found.interval.high < 0.0
            assert outside == (expected <= Fraction(alpha))


@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(st.integers(-10, 10), min_size=6, max_size=8, unique=True),
    alpha=st.sampled_from((0.05, 0.2)),
)
def test_the_limits_are_where_the_test_turns(values: list[int], alpha: float) -> None:
    """Without ties: each limit is not rejected, and anything beyond it is."""
    exact = _fractions(values)
    found = stats.sign_flip([float(value) for value in exact], 1.0 - alpha).interval
    assert found is not None
    for limit, outward in ((found.low, -1), (found.high, 1)):
        at = Fraction(limit).limit_denominator(100)
        if min(exact) < at < max(exact):  # else a family tied at an extreme may have widened it
            assert _p(exact, at) > Fraction(alpha)
        assert _p(exact, at + outward * Fraction(1, 10**6)) <= Fraction(alpha)


@settings(max_examples=60, deadline=None)
@given(values=_TENTHS | _SPARSE | st.lists(st.just(7), min_size=6, max_size=9))
def test_no_interval_is_impossible(values: list[int]) -> None:
    """Of shares: some width, within +-100 points, around the lift; swapped arms mirror it to the last bit."""
    differences = [value / 10 for value in values]
    found = stats.sign_flip(differences, bound=1.0)
    if found.interval is not None:
        assert -1.0 <= found.interval.low < found.interval.high <= 1.0
        lift = math.fsum(differences) / len(differences)
        assert found.interval.low <= lift + 1e-12 and lift - 1e-12 <= found.interval.high
        turned = stats.sign_flip([-value for value in differences], bound=1.0)
        assert turned.interval == stats.Interval(0.0 - found.interval.high, 0.0 - found.interval.low)
        assert turned.p_value == found.p_value


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(-4, 8), min_size=21, max_size=40), st.sampled_from((0.05, 0.0125, 0.00625)))
def test_drawn_subsets_keep_test_and_interval_together(values: list[int], alpha: float) -> None:
    """Above 20 families one set of draws serves both: they agree, and nothing depends on the order."""
    found = stats.sign_flip(values, 1.0 - alpha)
    assert found == stats.sign_flip(sorted(values), 1.0 - alpha)
    if found.interval is not None:
        outside = found.interval.low > 0.0 or found.interval.high < 0.0
        assert outside == (found.p_value <= alpha)


@pytest.mark.parametrize("n", [6, 7, 20, 25])
def test_everything_from_nothing_has_an_interval(n: int) -> None:
    """Every family from 0 to 100 %: the lower limit is Clopper-Pearson's of n of n families."""
    found = stats.sign_flip([1.0] * n, bound=1.0)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(0.025 ** (1 / n))
    assert found.interval.high == 1.0
    assert found.p_value == (2 / 2**n if n <= 20 else 2 / 99_991)


def test_equal_differences_have_an_interval_of_some_width() -> None:
    """Half of a share: towards none and towards all, by the 54 % that 6 of 6 families may stand for."""
    share = 0.025 ** (1 / 6)
    shares, logs = (stats.sign_flip([-0.5] * 6, bound=bound).interval for bound in (1.0, None))
    assert shares is not None and logs is not None
    assert (shares.low, shares.high) == pytest.approx((-0.5 * share - (1 - share), -0.5 * share))
    assert (logs.low, logs.high) == pytest.approx((-0.5, -0.5 * share))


def test_families_of_all_or_nothing_get_at_least_clopper_pearson() -> None:
    """11 of 12 families at 100 points, one at 0: (61.5, 99.8), as of 11 successes in 12."""
    found = stats.sign_flip([1.0] * 11 + [0.0], bound=1.0).interval
    assert found is not None
    assert found.low == pytest.approx(0.6152, abs=1e-4)
    assert found.high >= 0.9979


def test_no_difference_anywhere_has_p_1_and_no_interval() -> None:
    """Only zeros, also where rounding hides them."""
    assert stats.sign_flip([0.0] * 8, bound=1.0) == SignFlip(1.0, None, 0)
    assert stats.sign_flip([0.1 + 0.2 - 0.3, 0.0] * 4, scale=0.3) == SignFlip(1.0, None, 0)


@pytest.mark.parametrize(("n", "confidence"), [(5, 0.5001), (6, 0.975), (7, 0.99)])
def test_too_few_families_have_no_interval(n: int, confidence: float) -> None:
    """Below 6 at any level; above, where even n families that agree have a p above alpha."""
    assert stats.sign_flip([0.1 * (i + 1) for i in range(n)], confidence).interval is None


@pytest.mark.parametrize(
    ("values", "confidence", "bound", "message"),
    [
        ([math.nan], 0.95, None, "finite"),
        ([1.5], 0.95, 1.0, "beyond the bound"),
        ([0.1], 0.5, None, "above 0.5"),
    ],
)
def test_bad_input_is_refused(
    values: list[float], confidence: float, bound: float | None, message: str
) -> None:
    """No values, NaN, a share above 1, and an unusable confidence."""
    with pytest.raises(ValueError, match=message):
        stats.sign_flip(values, confidence, bound=bound)


def test_one_arm_has_a_band_that_stays_in_0_to_1() -> None:
    """All and nothing end at 100 % and 0 % and have some width; below 6 families there is no band."""
    share = 0.025 ** (1 / 6)
    full, none = stats.share_interval([1.0] * 6), stats.share_interval([0.0] * 6)
    assert full is not None and none is not None
    assert (full.low, full.high) == pytest.approx((share, 1.0))
    assert (none.low, none.high) == pytest.approx((0.0, 1.0 - share))
    assert stats.share_interval([0.2] * 5) is None
    with pytest.raises(ValueError, match=r"0\.\.1"):
        stats.share_interval([1.1])


# A ratio of paired means

X = (3.0, 1.0, 4.0, 2.0, 5.0, 2.5)
Y = (1.0, 0.5, 1.5, 0.5, 2.0, 1.5)


def test_a_ratio_ends_where_the_test_turns() -> None:
    """6 families: the smallest and the largest ratio of any subset; one family alone has both."""
    found = stats.paired_ratio(X, Y)
    assert found is not None and found.interval is not None and not found.unbounded
    assert found.ratio == pytest.approx(2.5)
    assert (found.interval.low, found.interval.high) == pytest.approx((2.5 / 1.5, 4.0))


def test_a_ratio_has_an_end_exactly_where_its_denominator_is_sure() -> None:
    """Drawn studies: unbounded is the same as an interval of the denominators that includes 0."""
    rng, seen = np.random.default_rng(3), set()
    for _ in range(60):
        y, x = rng.normal(0.3, 0.4, 8).tolist(), rng.normal(1.0, 0.2, 8).tolist()
        found, below = stats.paired_ratio(x, y), stats.sign_flip(y)
        assert found is not None and below.interval is not None
        assert found.unbounded == (below.interval.low <= 0.0 <= below.interval.high)
        assert (found.interval is None) == found.unbounded
        seen.add(found.unbounded)
    assert seen == {True, False}


def test_numerators_that_follow_exactly_give_no_interval_of_zero_width() -> None:
    """x = 2 y in every family: no interval; a gain of 0 has no price, five families have one without."""
    assert stats.paired_ratio(X, (1.0, -1.0) * 3) is None
    few = stats.paired_ratio(X[:5], Y[:5])
    assert few is not None and (few.interval, few.unbounded) == (None, False)
    with pytest.raises(ValueError, match="6 numerators and 2 denominators"):
        stats.paired_ratio(X, (1.0, 2.0))
    found = stats.paired_ratio([2.0 * y for y in Y], Y)
    assert found is not None
    assert (found.ratio, found.interval, found.unbounded) == (pytest.approx(2.0), None, False)
    whole, saved = stats.paired_ratio(X, Y), stats.paired_ratio([-100.0 * x for x in X], Y)
    assert whole is not None and whole.interval is not None  # savings mirror the interval
    assert saved is not None and saved.interval is not None
    assert saved.interval.low == pytest.approx(-100.0 * whole.interval.high)


@pytest.mark.parametrize(("families", "gain"), [(10, 0.3), (14, 0.2)])
def test_the_interval_holds_the_true_price_as_often_as_it_says(
    families: int, gain: float, record_property: Callable[[str, object], None]
) -> None:
    """2,000 studies with costs that rise with the gain: 95% or a little more; 'no end' holds it."""
    rng = np.random.default_rng(21)
    held, ended = 0, 0
    for _ in range(2_000):
        y = rng.normal(gain, 0.25, families)
        x = 0.02 + 0.05 * (y - gain) + rng.normal(0.0, 0.01, families)
        found = stats.paired_ratio(x.tolist(), y.tolist())
        assert found is not None
        ended += not found.unbounded
        held += found.interval is None or found.interval.low <= 0.02 / gain <= found.interval.high
    record_property(f"interval holds the price, {families} families", held / 2_000)
    assert 0.935 <= held / 2_000 <= 0.98
    assert ended > 1_000  # most of them are finite, so that the share says something
