"""The paired lift, the deployed score and the decision: hand calculations and edge cases."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import pytest

from harness import stats
from harness.stats import Decision, Lift, Observation, decide

Arm = Literal["treatment", "control"]


def _study(differences: list[float], base: float = 0.25) -> list[Observation]:
    """One task with one repeat per arm in each family, with the given differences."""
    found = []
    for index, difference in enumerate(differences):
        names = f"family{index:02}", f"task{index:02}"
        found.append(Observation(*names, "treatment", base + difference))
        found.append(Observation(*names, "control", base))
    return found


_CLEAR = [0.30, 0.25, 0.35, 0.28, 0.32, 0.27, 0.33, 0.31]  # eight families, all better
_UNCLEAR = [0.30, -0.25, 0.35, -0.28, 0.02, -0.27, 0.33, -0.01]
# Darwin's Zea mays, crossed minus self-fertilised, in eighths of an inch (Fisher 1935, ch. III).
_DARWIN = [49.0, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]


def test_deployed_is_never_negative() -> None:
    """A user keeps the reference, so only a correct and distinguishable speedup scores."""
    assert stats.deployed(2.0, True, True) == pytest.approx(math.log(2.0))
    assert stats.deployed(0.5, True, True) == 0.0
    assert stats.deployed(1.01, True, False) == 0.0
    assert stats.deployed(2.0, False, True) == 0.0
    assert stats.deployed(None, False, False) == 0.0
    for unmeasured in (None, 0.0, math.nan):  # absent from the metric, never 0
        with pytest.raises(ValueError):
            stats.deployed(unmeasured, True, False)


def test_paired_lift_averages_repeats_then_tasks_then_families() -> None:
    """Many tasks in a family or many repeats of a task give it no more weight."""

    def rows(family: str, task: str, arm: Arm, *values: float) -> list[Observation]:
        return [Observation(family, task, arm, value) for value in values]

    found = stats.paired_lift(
        [
            *rows("norm", "rms", "treatment", 1.0, 1.0, 0.0, 0.0),  # 0.5
            *rows("norm", "rms", "control", 0.0),
            *rows("norm", "layer", "treatment", 1.0),
            *rows("norm", "layer", "control", 1.0, 0.0),  # 0.5
            *rows("gemm", "bf16", "treatment", 1.0),
            *rows("gemm", "bf16", "control", 0.0, 0.0, 0.0),
            *rows("gemm", "fp8", "treatment", 1.0),  # no control: dropped
            *rows("scan", "sum", "control", 1.0),  # no treatment: dropped
        ]
    )
    assert found.per_family == (("gemm", 1.0), ("norm", 0.5))
    assert (found.mean_with, found.mean_without, found.lift) == (0.875, 0.125, 0.75)
    assert (found.n_families, found.n_tasks, found.n_dropped_tasks) == (2, 3, 2)
    assert (found.p_value, found.interval, found.n_different) == (0.5, None, 2)


def test_sign_flip_matches_fishers_count_on_darwins_maize() -> None:
    """Fisher (1935) counts 863 of 32,768 sign patterns in each tail, ties included: p = 0.05267."""
    assert stats.paired_lift(_study(_DARWIN)).p_value == 2 * 863 / 2**15
    tenths = [difference / 10.0 for difference in _DARWIN]  # rounding splits ties
    assert stats.paired_lift(_study(tenths, base=0.1)).p_value == 2 * 863 / 2**15


def test_without_a_pair_everything_is_none() -> None:
    """No task with both arms gives None throughout, and the dropped tasks are counted."""
    found = stats.paired_lift(_study([0.5]))  # a single family has a lift and nothing more
    assert (found.lift, found.interval, found.p_value, found.n_families) == (0.5, None, None, 1)
    assert stats.paired_lift([]) == Lift(None, None, None, None, None, 0, 0, 0, ())
    alone = [Observation("a", "t", "control", 1.0), Observation("a", "u", "treatment", 1.0)]
    assert stats.paired_lift(alone) == Lift(None, None, None, None, None, 0, 0, 2, ())


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (Observation("a", "t", "control", math.nan), "finite"),
        (Observation("b", "task00", "control", 1.0), "two families"),
        (Observation("a", "t", "placebo", 1.0), "unknown arm"),  # type: ignore[arg-type]
    ],
)
def test_paired_lift_refuses_bad_observations(observation: Observation, message: str) -> None:
    """NaN, a task in two families and an unknown arm are refused."""
    with pytest.raises(ValueError, match=message):
        stats.paired_lift([*_study([0.1, 0.2]), observation])
    with pytest.raises(ValueError, match="confidence"):
        stats.paired_lift([], confidence=95)
    with pytest.raises(ValueError, match="shares"):
        stats.paired_lift(_study([1.0]), shares=True)


# The decision


def test_a_clear_lift_helps_and_its_mirror_hurts() -> None:
    """An interval off zero with p below alpha is called in its direction."""
    assert decide(stats.paired_lift(_study(_CLEAR))).decision == "helps"
    worse = stats.paired_lift(_study([-difference for difference in _CLEAR]))
    assert decide(worse).decision == "hurts"
    unclear = stats.paired_lift(_study(_UNCLEAR))
    assert decide(unclear) == Decision(
        "inconclusive", "the interval includes 0, p = 0.703; 8 of 8 families differ"
    )
    assert decide(worse, placebo=unclear).decision == "hurts"  # a placebo only restricts `helps`
    blocked = decide(stats.paired_lift(_study(_CLEAR)), blocked="infra rates differ")
    assert blocked == Decision("inconclusive", "infra rates differ")
    same = stats.paired_lift(_study([0.0] * 8))
    assert (same.interval, same.p_value) == (None, 1.0)
    assert decide(same) == Decision("inconclusive", "no difference seen")


def test_fewer_than_six_families_never_decide() -> None:
    """Five families are too few, whatever the evidence or block; six can decide."""
    five = stats.paired_lift(_study(_CLEAR[:5]))
    assert decide(five) == Decision("inconclusive", "too few families")
    assert decide(five, blocked="infra").reason == "too few families"
    assert decide(stats.paired_lift([])).reason == "too few families"
    assert decide(stats.paired_lift(_study(_CLEAR[:6]))).decision == "helps"


def test_interval_and_p_value_must_agree() -> None:
    """An interval off zero is not enough: the adjusted p value must be at most alpha as well."""
    lift = stats.paired_lift(_study(_CLEAR[:6]))
    assert lift.p_value == 0.03125
    found = decide(lift, p_adjusted=0.0625)
    assert found == Decision("inconclusive", "adjusted p = 0.0625 is above 0.05; 6 of 6 families differ")
    assert decide(replace(lift, p_value=0.0501)).decision == "inconclusive"
    assert decide(replace(lift, p_value=0.05)).decision == "helps"


def test_helps_must_beat_the_placebo_too() -> None:
    """A skill that beats nothing but not the placebo is inconclusive; one that beats both helps."""
    lift = stats.paired_lift(_study(_CLEAR))
    for placebo in (_UNCLEAR, _CLEAR[:5], [-difference for difference in _CLEAR], [0.0] * 8):
        found = decide(lift, placebo=stats.paired_lift(_study(placebo)))
        assert found.decision == "inconclusive"
        assert "placebo" in found.reason
    assert decide(lift, placebo=lift).decision == "helps"


def test_decide_refuses_mistakes_of_the_caller() -> None:
    """An interval of another level, an adjusted p below the raw one or above 1, and an untested lift."""
    lift = stats.paired_lift(_study(_CLEAR))
    with pytest.raises(ValueError, match="confidence"):
        decide(lift, alpha=0.01)
    for p_adjusted in (0.001, 1.1, math.nan):
        with pytest.raises(ValueError, match="p_adjusted"):
            decide(lift, p_adjusted=p_adjusted)
    untested = stats.paired_lift(_study(_CLEAR), tested=False)
    assert untested == replace(lift, p_value=None)
    with pytest.raises(ValueError, match="not tested"):
        decide(untested)
