"""Student's t, intervals of means and ratios: published values and hand calculations."""

from __future__ import annotations

import math

import pytest

from harness import stats
from harness.stats.timing_interval import Estimate, mean_interval, t_cdf, t_ppf


@pytest.mark.parametrize(
    ("p", "df", "published"),
    [
        (0.90, 1, 3.078), (0.95, 2, 2.920), (0.975, 1, 12.706), (0.975, 5, 2.571), (0.975, 30, 2.042),
        (0.99, 4, 3.747), (0.995, 10, 3.169), (0.999, 3, 10.215), (0.9995, 1, 636.619), (0.9995, 30, 3.646),
        (0.975, 1e6, 1.960),
    ],
)  # fmt: skip
def test_t_quantiles_match_the_printed_table(p: float, df: float, published: float) -> None:
    """To three decimals, in both tails; the distribution function is its inverse."""
    assert t_cdf(t_ppf(p, df), df) == pytest.approx(p, rel=1e-11)
    assert t_ppf(p, df) == pytest.approx(published, abs=5.1e-4)
    assert t_ppf(1.0 - p, df) == pytest.approx(-published, abs=5.1e-4)


def test_mean_interval_matches_students_sleep_data() -> None:
    """Student's paired sleep data: mean 1.58, interval 0.7001 to 2.4599 (R)."""
    found = mean_interval([1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4])
    assert found.interval is not None
    assert (found.value, found.n) == (pytest.approx(1.58), 10)
    assert (found.interval.low, found.interval.high) == pytest.approx((0.7001142, 2.4598858), abs=1e-6)


@pytest.mark.parametrize("values", [[0.4], [0.4, 0.4, 0.4], [0.0, 0.0], [0.3, 0.1 + 0.2]])
def test_no_spread_gives_no_interval(values: list[float]) -> None:
    """One value, equal values and values equal except for rounding give None, never zero width."""
    found = mean_interval(values)
    assert (found.value, found.interval, found.n) == (pytest.approx(values[0]), None, len(values))


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [1.0, math.inf]])
def test_bad_values_are_refused_everywhere(values: list[float]) -> None:
    """No values, NaN and infinity."""
    for function in (mean_interval, stats.log_ratio_interval, stats.median_iqr):
        with pytest.raises(ValueError):
            function(values)


def test_log_ratio_interval_is_the_exponentiated_t_interval() -> None:
    """Five process pairs: exp of the mean log and its t interval; one pair has no interval."""
    found = stats.log_ratio_interval([0.10, 0.12, 0.08, 0.11, 0.09])
    half = 2.776445 * math.sqrt(0.00025 / 5)
    assert found.interval is not None
    assert (found.value, found.n) == (pytest.approx(math.exp(0.1)), 5)
    assert math.log(found.interval.low) == pytest.approx(0.1 - half, abs=1e-8)
    assert math.log(found.interval.high) == pytest.approx(0.1 + half, abs=1e-8)
    assert stats.log_ratio_interval([0.0]) == Estimate(1.0, None, 1)


def test_median_and_quartiles_by_hand() -> None:
    """Quartiles interpolate linearly: of 1, 2, 3, 10 they are 1.75, 2.5 and 4.75."""
    assert stats.median_iqr([10.0, 2.0, 3.0, 1.0]) == (2.5, 1.75, 4.75)
    assert stats.median_iqr([7.0]) == (7.0, 7.0, 7.0)
