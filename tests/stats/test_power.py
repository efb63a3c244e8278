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


@pytest.mark.parametrize(("alpha", "fewest"), [(0.05, 6), (0.025, 7), (0.0125, 8), (2 / 64, 6), (0.5, 2)])
def test_fewest_families_can_be_significant(alpha: float, fewest: int) -> None:
    """With one family fewer, even unanimous families have a sign-flip p above alpha."""
    assert stats.fewest_families(alpha) == fewest
    assert 2 / 2**fewest <= alpha < 2 / 2 ** (fewest - 1)
