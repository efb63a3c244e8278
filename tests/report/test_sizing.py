"""How large a study must be: rows by hand, and what an earlier run tells."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.errors import UsageError
from harness.models.prices import Price
from harness.outcome import Cause
from harness.report.simulation import Design
from harness.report.sizing import Sizing
from harness.report.spread import ASSUMED_USAGE, Spread, assumed_spread, spread_of, usage_of_run
from tests.report import factories as make
from tests.report import studies
from tests.report.test_summary import WRONG, small_study

PRICE = Price(input_usd_per_mtok=1.0, output_usd_per_mtok=5.0)


def sizing(**changes: Any) -> Sizing:
    values: dict[str, Any] = {
        "metric": "deployed",
        "effect": 0.15,
        "power": 0.8,
        "alpha": 0.05,
        "look": None,
        "runs": 5,
        "design": Design(),
        "spread": assumed_spread("deployed"),
        "usage": ASSUMED_USAGE,
        "prices": (PRICE,),
        "suite_families": 25,
        "suite_tasks": 50,
    }
    return Sizing(**(values | changes))


def test_a_row_by_hand() -> None:
    """12 families of two tasks x 5 runs x 2 arms: 240 replies, 15.8k tokens and $0.0518 a pair, x1.56."""
    row = sizing().row(12)
    assert (row.families, row.tasks, row.trials) == (12, 24, 240)
    assert row.tokens == 120 * (1_600 + 5_200 + 2 * 4_500)
    assert row.cost_usd == pytest.approx(120 * (6_800 * 1.0 + 9_000 * 5.0) / 1e6)
    assert row.smallest_effect == pytest.approx(0.56, abs=0.005)


def test_the_needed_families_reach_the_power_and_one_fewer_does_not() -> None:
    """x1.15 at sd 0.5 needs 103 families: more than there are."""
    plan = sizing().plan(None)
    assert plan.needed is not None and plan.needed.power is not None
    assert (plan.needed.families, plan.asked) == (103, None)
    fewer = sizing().row(102).power
    assert fewer is not None and fewer < 0.8 <= plan.needed.power
    assert plan.suite.smallest_effect == pytest.approx(0.338, abs=0.005)
    assert [row.families for row in plan.rows][0::9] == [6, 50]


def test_shares_are_differences_and_never_above_one() -> None:
    """15 points of correct at sd 0.3 need 34 families; what would take more than 100 points is nothing."""
    plan = sizing(metric="correct", spread=assumed_spread("correct")).plan(6)
    assert plan.needed is not None and plan.asked is not None
    assert plan.needed.families == 34
    assert plan.asked.smallest_effect == pytest.approx(0.3 * 1.7932, abs=1e-3)
    assert sizing(metric="correct", spread=Spread(2.0, "given")).row(6).smallest_effect is None


def test_a_smaller_alpha_needs_more_families() -> None:
    """At 0.0125 seven families decide nothing, and the effect takes more of them."""
    late, usual = sizing(alpha=0.0125, effect=0.6), sizing(effect=0.6)
    assert (late.row(7).smallest_effect, late.row(7).power) == (None, 0.0)
    first, second = usual.plan(None).needed, late.plan(None).needed
    assert first is not None and second is not None
    assert second.families > first.families


def test_more_runs_shrink_only_the_chance_between_runs() -> None:
    """sd 0.5 with 0.16 of its 0.25 from 2 runs: 8 runs leave 0.09 + 0.04, endless runs 0.09."""
    spread = Spread(0.5, "seen", noise_variance=0.16, repeats=2)
    assert spread.at(2) == pytest.approx(0.5)
    assert spread.at(8) == pytest.approx(math.sqrt(0.13))
    assert Spread(0.5, "given").at(8) == 0.5


def test_the_spread_of_a_run_by_hand() -> None:
    """Logs (1,1,1,1,1,2) ln 2 have the sd ln 2 / sqrt 6; single runs do not tell chance from families."""
    run, trials, _ = small_study()
    found = spread_of(run, trials, "deployed")
    assert found.sd == pytest.approx(math.log(2) / math.sqrt(6))
    assert found.noise_variance is None
    assert run.run_id in found.source


def test_chance_between_runs_is_learned_from_repeats() -> None:
    """One of two runs correct in both arms of every task: variance 1/2 each, over 2 runs, two arms: 1/2."""
    tasks = make.families(6)
    trials = []
    for index, task in enumerate(tasks):
        for arm in (make.WITHOUT, make.WITH):
            solved = index == 0 and arm is make.WITH
            trials.append(make.trial(task, arm, *((Cause.PASSED, "passed") if solved else WRONG)))
            trials.append(make.trial(task, arm, repeat=1))
    found = spread_of(make.run(tasks, repeats=2), trials, "correct")
    assert found.noise_variance == pytest.approx((5 * 0.5 + 0.25) / 6)
    assert found.repeats == 2


def test_a_run_without_spread_is_refused() -> None:
    """0 to 100% in every family says nothing about the spread."""
    run, trials, _ = small_study()
    with pytest.raises(UsageError, match=r"no spread of correct between families.*--sd"):
        spread_of(run, trials, "correct")


def test_a_leaked_task_is_not_learned_from() -> None:
    """Without the leaked task nothing differs, so there is no spread."""
    run, trials, _ = studies.leaked()
    with pytest.raises(UsageError, match="no spread"):
        spread_of(run, trials, "deployed")
    bare = run.model_copy(update={"lock": run.lock.model_copy(update={"leaked": {}})})
    assert spread_of(bare, trials, "deployed").sd > 1.0


def test_usage_comes_from_the_run_and_unknown_stays_unknown() -> None:
    """1,000 + 3,000 tokens and $0.02 a trial; one reply without a cost makes dollars unknown."""
    run, trials, _ = small_study()
    found = usage_of_run(run, trials)
    assert (found.tokens(1, 1), found.dollars(1, 1, None)) == (8_000.0, pytest.approx(0.04))
    assert (found.tokens(1, 4), found.dollars(1, 4, None)) == (20_000.0, pytest.approx(0.1))
    assert found.dollars(1, 1, PRICE) == pytest.approx((2_000 + 6_000 * 5) / 1e6)
    trials[0] = make.trial("l1/f0t0", make.WITHOUT, *WRONG, answer=make.reply(None, None))
    blind = usage_of_run(run, trials)
    assert [blind.tokens(1, 1), blind.dollars(1, 1, None), blind.dollars(1, 1, PRICE)] == [None] * 3


def test_every_arm_and_model_is_counted() -> None:
    """3 skills with a placebo each are 7 arms; 2 models: 14 trials a task and run, 6 of 7 with a text."""
    row = sizing(design=Design(skills=3, models=2, placebo=True), prices=(PRICE, PRICE), effect=None).row(12)
    assert (row.tasks, row.trials) == (24, 24 * 5 * 14)
    assert row.tokens == 2 * 120 * ((1_600 + 4_500) + 6 * (5_200 + 4_500))
    assert row.cost_usd == pytest.approx(2 * 120 * ((1_600 + 6 * 5_200) + 7 * 4_500 * 5.0) / 1e6)
    unknown = sizing(design=Design(models=2), prices=(PRICE, None), effect=None).row(12)
    assert unknown.cost_usd is None and unknown.tokens is not None


def test_more_than_can_be_simulated_is_said() -> None:
    """x1.05 against a placebo takes far more than 400 families: no row, and the bound."""
    plan = sizing(design=Design(placebo=True), effect=0.05).plan(None)
    assert (plan.needed, plan.needed_above) == (None, 400)
    assert sizing(effect=0.05).plan(None).needed_above is None
