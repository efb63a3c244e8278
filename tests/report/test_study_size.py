"""The size of a study: figures by hand, and what an earlier run tells."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.errors import UsageError
from harness.models.prices import Price
from harness.report.study_size import ASSUMED_COSTS, ASSUMED_SD, StudyDesign, costs_of_run, observed_sd
from tests.report import factories as make
from tests.report import studies
from tests.report.test_summary import WRONG, small_study

PRICE = Price(input_usd_per_mtok=1.0, output_usd_per_mtok=5.0)


def sizing(metric: str = "deployed", **changes: Any) -> StudyDesign:
    """5 runs of 25 families with one skill and model, to find 15% or 15 points with 80% power."""
    values: dict[str, Any] = {"metric": metric, "effect": 0.15, "power": 0.8, "alpha": 0.05, "runs": 5}
    values |= {"sd": ASSUMED_SD[metric], "sd_source": "", "costs": ASSUMED_COSTS, "costs_source": ""}
    values |= {"skills": 1, "models": 1, "prices": (PRICE,), "suite_families": 25, "suite_tasks": 50}
    return StudyDesign.model_validate(values | changes)


def test_the_needed_families_reach_the_power_and_one_fewer_does_not() -> None:
    """x1.15 at sd 0.5 needs 103 families; 15 points of correct at sd 0.3 need 34."""
    plan = sizing().plan(None)
    assert plan.needed is not None and plan.needed.power is not None
    assert (plan.needed.families, plan.asked) == (103, None)
    fewer = sizing().size(102).power
    assert fewer is not None and fewer < 0.8 <= plan.needed.power
    assert plan.suite.smallest_effect == pytest.approx(0.338, abs=0.005)
    shares = sizing("correct").plan(6)
    assert shares.needed is not None and shares.asked is not None
    assert shares.needed.families == 34
    assert shares.asked.smallest_effect == pytest.approx(0.3 * 1.7932, abs=1e-3)
    assert sizing("correct", sd=2.0).size(6).smallest_effect is None  # above 100 points
    late, four = sizing(alpha=0.0125, effect=0.6), sizing(skills=4, effect=0.6)  # equal levels
    assert (late.size(7).smallest_effect, late.size(7).power) == (None, 0.0)
    assert late.plan(None).needed.families == four.plan(None).needed.families  # type: ignore[union-attr]


def test_every_arm_and_model_is_counted() -> None:
    """3 skills are 4 arms; 2 models: 8 trials per task and run. One unknown price makes dollars unknown."""
    assert sizing().size(12).smallest_effect == pytest.approx(0.56, abs=0.005)
    row = sizing(skills=3, models=2, prices=(PRICE, PRICE), effect=None).size(12)
    assert (row.tasks, row.trials) == (24, 24 * 5 * 8)
    assert row.tokens == 2 * 120 * ((1_600 + 4_500) + 3 * (5_200 + 4_500))
    assert row.cost_usd == pytest.approx(2 * 120 * ((1_600 + 3 * 5_200) + 4 * 4_500 * 5.0) / 1e6)
    unknown = sizing(models=2, prices=(PRICE, None), effect=None).size(12)
    assert unknown.cost_usd is None and unknown.tokens is not None


def test_the_spread_of_a_run_by_hand() -> None:
    """Logs (1,1,1,1,1,2) ln 2 have the sd ln 2 / sqrt 6; equal differences, also by leaks, have none."""
    run, trials, _ = small_study()
    assert observed_sd(run, trials, "deployed") == pytest.approx(math.log(2) / math.sqrt(6))
    with pytest.raises(UsageError, match=r"no spread of correct between families.*--sd"):
        observed_sd(run, trials, "correct")
    run, trials, _ = studies.leaked()
    with pytest.raises(UsageError, match="no spread"):
        observed_sd(run, trials, "deployed")


def test_costs_come_from_the_run_and_unknown_stays_unknown() -> None:
    """1,000 + 3,000 tokens and $0.02 a trial; one reply without a count makes both unknown."""
    run, trials, _ = small_study()
    for found in costs_of_run(run, trials):
        assert (found.tokens, found.dollars(None)) == (4_000.0, pytest.approx(0.02))
        assert found.dollars(PRICE) == pytest.approx(0.016)
    trials[0] = make.trial("l1/f0t0", make.WITHOUT, *WRONG, answer=make.reply(None, None))
    blind, _ = costs_of_run(run, trials)
    assert [blind.tokens, blind.dollars(None), blind.dollars(PRICE)] == [None] * 3
