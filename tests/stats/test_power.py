"""Power, smallest effects and sizes of studies: published values and hand calculations."""

from __future__ import annotations

import math

import pytest

from harness import stats


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
    assert stats.smallest_effect(1.0, 6) == pytest.approx(1.7932, abs=1e-3)  # all six must agree
    assert stats.smallest_effect(1.0, 5) is None and stats.power_to_detect(100.0, 1.0, 5) == 0.0
    with pytest.raises(ValueError, match="must be"):
        stats.power_to_detect(0.0, 1.0, 9)
    for n in (6, 9, 25, 40):
        effect = stats.smallest_effect(0.5, n)
        assert effect is not None
        assert stats.power_to_detect(effect, 0.5, n) == pytest.approx(0.8)
        assert stats.families_needed(effect * 1.000_001, 0.5) == n


@pytest.mark.parametrize(
    ("baseline", "effect", "noise"), [(None, 0.2, 0.48), (0.0, 0.2, 0.16), (0.4, 0.2, 0.48)]
)
def test_replies_to_shares_scatter_as_bernoulli_trials(
    baseline: float | None, effect: float, noise: float
) -> None:
    """p (1 - p) of both arms; the smallest effect solves e = k sd(e), for few replies and for many."""
    a, b, c = stats.share_noise(baseline)
    assert a + b * effect + c * effect**2 == pytest.approx(noise)
    for replies in (1.0, 10.0):
        sd = stats.sd_of_differences(0.1, noise, replies)
        assert sd == pytest.approx(math.sqrt(0.01 + noise / replies))
        assert stats.smallest_share_effect(effect / sd, 0.1, replies, baseline) == pytest.approx(effect)


def test_the_closed_form_agrees_with_simulated_studies() -> None:
    """+20 points, 5 replies: simulated studies of 25 families find it in 88.7 % (docs/statistics.md)."""
    a, _, c = stats.share_noise(None)
    sd = stats.sd_of_differences(0.1, a + c * 0.2**2, 5.0)
    assert stats.power_to_detect(0.2, sd, 25) == pytest.approx(0.887, abs=0.05)


@pytest.mark.parametrize(("alpha", "fewest"), [(0.05, 6), (0.025, 7), (0.0125, 8), (2 / 64, 6), (0.5, 2)])
def test_fewest_families_can_be_significant(alpha: float, fewest: int) -> None:
    """With one family fewer, even unanimous families have a sign-flip p above alpha."""
    assert stats.fewest_families(alpha) == fewest
    assert 2 / 2**fewest <= alpha < 2 / 2 ** (fewest - 1)
