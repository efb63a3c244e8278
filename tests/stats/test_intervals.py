"""Student's t, intervals of means and ratios, and power: published values and hand calculations."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from harness import stats
from harness.stats.intervals import RatioEstimate, mean_interval, t_cdf, t_ppf


@pytest.mark.parametrize(
    ("p", "df", "published"),
    [
        (0.90, 1, 3.078), (0.95, 2, 2.920), (0.975, 1, 12.706), (0.975, 5, 2.571), (0.975, 30, 2.042),
        (0.99, 4, 3.747), (0.995, 10, 3.169), (0.999, 3, 10.215), (0.9995, 1, 636.619), (0.9995, 30, 3.646),
        (0.975, 1e6, 1.960),
    ],
)  # fmt: skip
def test_t_quantiles_match_the_printed_table(p: float, df: float, published: float) -> None:
    """To three decimals, in both tails."""
    assert t_ppf(p, df) == pytest.approx(published, abs=5.1e-4)
    assert t_ppf(1.0 - p, df) == pytest.approx(-published, abs=5.1e-4)


@pytest.mark.parametrize("t", [-1e8, -3.0, -0.1, 0.0, 1e-9, 0.5, 2.0, 40.0, 1e8])
def test_t_cdf_has_its_closed_forms(t: float) -> None:
    """The arctangent with 1 degree of freedom, an algebraic form with 2."""
    assert t_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-13)
    assert t_cdf(t, 2) == pytest.approx(0.5 + t / (2.0 * math.sqrt(2.0 + t * t)), abs=1e-13)


@pytest.mark.parametrize("df", [1, 2.5, 40, 1_000])
@pytest.mark.parametrize("p", [1e-12, 0.001, 0.5, 0.500001, 0.9999])
def test_quantile_and_cdf_are_inverse(df: float, p: float) -> None:
    """Also far in the tail."""
    assert t_cdf(t_ppf(p, df), df) == pytest.approx(p, rel=1e-11)


def test_t_refuses_bad_input() -> None:
    """Degrees of freedom below 1, values that are not finite, probabilities outside (0, 1)."""
    for df in (0.5, -1.0, math.nan, math.inf):
        for call in (t_ppf, t_cdf):
            with pytest.raises(ValueError, match="df"):
                call(0.9, df)
    for p in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="p must"):
            t_ppf(p, 5)
    with pytest.raises(ValueError, match="finite"):
        t_cdf(math.nan, 5)


def test_mean_interval_matches_students_sleep_data() -> None:
    """Student's paired sleep data: mean 1.58, interval 0.7001 to 2.4599 (R)."""
    found = mean_interval([1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4])
    assert found.interval is not None
    assert (found.mean, found.n) == (pytest.approx(1.58), 10)
    assert (found.interval.low, found.interval.high) == pytest.approx((0.7001142, 2.4598858), abs=1e-6)


@pytest.mark.parametrize("values", [[0.4], [0.4, 0.4, 0.4], [0.0, 0.0], [0.3, 0.1 + 0.2]])
def test_no_spread_gives_no_interval(values: list[float]) -> None:
    """One value, equal values and values equal except for rounding give None, never zero width."""
    found = mean_interval(values)
    assert (found.mean, found.interval, found.n) == (pytest.approx(values[0]), None, len(values))


@pytest.mark.parametrize("scale", [1e-250, 1.0, 1e250])
def test_mean_interval_does_not_overflow(scale: float) -> None:
    """Very small and very large units give the same interval, rescaled."""
    found = mean_interval([1.0 * scale, 2.0 * scale, 4.0 * scale])
    assert found.interval is not None
    assert found.interval.high / scale == pytest.approx(7.0 / 3.0 + 3.794615, rel=1e-5)


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
    assert (found.ratio, found.n) == (pytest.approx(math.exp(0.1)), 5)
    assert math.log(found.interval.low) == pytest.approx(0.1 - half, abs=1e-8)
    assert math.log(found.interval.high) == pytest.approx(0.1 + half, abs=1e-8)
    assert stats.log_ratio_interval([0.0]) == RatioEstimate(1.0, None, 1)


def test_confidence_widens_the_interval() -> None:
    """A 99% interval contains the 95% interval; a confidence of 1 is refused."""
    narrow, wide = (mean_interval([1.0, 2.0, 4.0], c).interval for c in (0.95, 0.99))
    assert narrow is not None and wide is not None
    assert wide.low < narrow.low < narrow.high < wide.high
    with pytest.raises(ValueError, match="confidence"):
        mean_interval([1.0, 2.0], 1.0)


def test_median_and_quartiles_by_hand() -> None:
    """Quartiles interpolate linearly: of 1, 2, 3, 10 they are 1.75, 2.5 and 4.75."""
    assert stats.median_iqr([10.0, 2.0, 3.0, 1.0]) == (2.5, 1.75, 4.75)
    assert stats.median_iqr([7.0]) == (7.0, 7.0, 7.0)


# Power


def _exact_power(effect: float, n: int, alpha: float) -> float:
    """Of the t test on n unit normals: noncentral t, by quadrature over the sample variance."""
    df = n - 1
    points = (np.arange(4_000) + 0.5) / 4_000 * (df + 14.0 * math.sqrt(2.0 * df) + 30.0)
    density = np.exp((df / 2 - 1) * np.log(points) - points / 2)
    critical = t_ppf(1.0 - alpha / 2.0, df)
    chances = [NormalDist(effect * math.sqrt(n) - critical * math.sqrt(v / df)).cdf(0.0) for v in points]
    return 1.0 - float(np.average(chances, weights=density))


@pytest.mark.parametrize("alpha", [0.05, 0.025])
@pytest.mark.parametrize("n", [8, 25, 50])
def test_the_t_approximation_is_near_the_exact_power(n: int, alpha: float) -> None:
    """At the planned effect the noncentral t gives 80% within 1.2 points."""
    effect = stats.smallest_effect(1.0, n, 0.8, alpha)
    assert effect is not None
    assert _exact_power(effect, n, alpha) == pytest.approx(0.8, abs=0.012)


@pytest.mark.parametrize(("families", "ratio"), [(12, 1.56), (30, 1.30), (48, 1.23), (100, 1.15)])
def test_smallest_effects_match_published_ratios(families: int, ratio: float) -> None:
    """At sd 0.5 of the log ratio and 80% power, to 2 decimals; more of anything needs a larger effect."""
    effect = stats.smallest_effect(0.5, families)
    assert effect is not None and round(math.exp(effect), 2) == ratio
    for harder in ({"power": 0.9}, {"alpha": 0.01}, {"sd": 0.6}):
        other = stats.smallest_effect(**({"sd": 0.5, "n_families": families} | harder))  # type: ignore[arg-type]
        assert other is not None and other > effect


def test_power_and_effect_and_size_are_inverse() -> None:
    """The effect found with 80% power by n families takes n families at 80%, and one fewer is too few."""
    for n in (6, 9, 25, 40):
        effect = stats.smallest_effect(0.5, n)
        assert effect is not None
        assert stats.power_to_detect(effect, 0.5, n) == pytest.approx(0.8)
        assert stats.families_needed(effect * 1.000_001, 0.5) == n


@pytest.mark.parametrize(("alpha", "fewest"), [(0.05, 6), (0.025, 7), (0.0125, 8), (2 / 64, 6), (0.5, 2)])
def test_fewest_families_can_be_significant(alpha: float, fewest: int) -> None:
    """With one family fewer, even unanimous families have a sign-flip p above alpha."""
    assert stats.fewest_families(alpha) == fewest
    assert 2 / 2**fewest <= alpha < 2 / 2 ** (fewest - 1)


def test_the_fewest_families_must_all_agree() -> None:
    """Six families: 80% power needs Phi(effect)^6 = 0.8, effect 1.793 sd; five families find nothing."""
    assert stats.smallest_effect(1.0, 6) == pytest.approx(1.7932, abs=1e-3)
    assert stats.smallest_effect(1.0, 5) is None
    assert stats.power_to_detect(100.0, 1.0, 5) == 0.0


def test_power_refuses_bad_input() -> None:
    """Effects and spreads are above 0, there are two families, and certain power has no answer."""
    for bad in ((0.0, 1.0, 9), (math.inf, 1.0, 9), (0.1, 0.0, 9), (0.1, math.nan, 9), (0.1, 1.0, 1)):
        with pytest.raises(ValueError, match="must be"):
            stats.power_to_detect(*bad)
    with pytest.raises(ValueError, match="power"):
        stats.smallest_effect(0.5, 12, 1.0)
