"""Power and sample size against the exact distribution and hand calculations."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from harness import stats
from harness.stats import student_t


def _exact_power(effect: float, n: int, alpha: float) -> float:
    """Of the t test on n unit normals: noncentral t, by quadrature over the sample variance."""
    df = n - 1
    points = (np.arange(4_000) + 0.5) / 4_000 * (df + 14.0 * math.sqrt(2.0 * df) + 30.0)
    density = np.exp((df / 2 - 1) * np.log(points) - points / 2)
    critical = student_t.t_ppf(1.0 - alpha / 2.0, df)
    chances = [NormalDist(effect * math.sqrt(n) - critical * math.sqrt(v / df)).cdf(0.0) for v in points]
    return 1.0 - float(np.average(chances, weights=density))


@pytest.mark.parametrize("alpha", [0.05, 0.025])
@pytest.mark.parametrize("n", [8, 12, 25, 50])
def test_the_t_approximation_is_near_the_exact_power(n: int, alpha: float) -> None:
    """At the planned effect the noncentral t gives 80% within 1.2 points: as docs/statistics.md says."""
    effect = stats.smallest_effect(1.0, n, 0.8, alpha)
    assert effect is not None
    assert _exact_power(effect, n, alpha) == pytest.approx(0.8, abs=0.012)


def test_power_and_effect_and_size_are_inverse() -> None:
    """The effect found with 80% power by n families takes n families at 80%, and one fewer is too few."""
    for n in (6, 9, 25, 40):
        effect = stats.smallest_effect(0.5, n)
        assert effect is not None
        assert stats.power_to_detect(effect, 0.5, n) == pytest.approx(0.8)
        assert stats.units_needed(effect * 1.000_001, 0.5) == n


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


@pytest.mark.parametrize("bad", [(0.0, 1.0, 9), (math.inf, 1.0, 9), (0.1, 0.0, 9), (0.1, 1.0, 1)])
def test_power_refuses_bad_input(bad: tuple[float, float, int]) -> None:
    """Effects and spreads are above 0, and there are units."""
    with pytest.raises(ValueError, match="must be"):
        stats.power_to_detect(*bad)
