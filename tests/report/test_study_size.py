"""The size of a study: figures by hand, and what an earlier run tells."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.models.prices import Price
from harness.report.spread import OBSERVED, Spread, observed_spread
from harness.report.study_size import ASSUMED_COSTS, StudyDesign, costs_of_run, detectable
from harness.study.store import RunStore
from tests.report import factories as make
from tests.report import studies
from tests.report.test_summary import WRONG, small_study

PRICE = Price(input_usd_per_mtok=1.0, output_usd_per_mtok=5.0)


STUDIES = Path(__file__).resolve().parents[2] / "studies"
CPU_RUN, CUDA_RUN = STUDIES / "cpu-kernel-builder/run", STUDIES / "cuda-kernel-builder/run-builder"


def given(sd: float) -> Spread:
    return Spread(source="", total=sd, replies=1.0, between=sd, share=False)


def sizing(metric: str = "deployed", **changes: Any) -> StudyDesign:
    """5 runs of 25 families with one skill and model, to find 15% or 15 points with 80% power."""
    values: dict[str, Any] = {"metric": metric, "effect": 0.15, "power": 0.8, "alpha": 0.05, "runs": 5}
    values |= {"spread": given(0.5 if metric == "deployed" else 0.3)}
    values |= {"costs": ASSUMED_COSTS, "costs_source": ""}
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
    assert sizing("correct", spread=given(2.0)).size(6).smallest_effect is None  # above 100 points
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
    spread, _ = observed_spread(run, trials, "deployed")
    assert (spread.total, spread.between) == (pytest.approx(math.log(2) / math.sqrt(6)), None)
    with pytest.raises(UsageError, match=r"no spread of correct between families.*--sd"):
        observed_spread(run, trials, "correct")
    run, trials, _ = studies.leaked()
    with pytest.raises(UsageError, match="no spread"):
        observed_spread(run, trials, "deployed")


@pytest.mark.parametrize(
    ("metric", "folder"), [("deployed", CPU_RUN), ("correct", CPU_RUN), ("compiles", CUDA_RUN)]
)
def test_the_spread_that_plans_rest_on_is_that_of_the_recorded_study(metric: str, folder: Path) -> None:
    """Recomputed from the committed records, to 3 decimals."""
    store = RunStore(folder)
    found, baseline = observed_spread(store.run(), store.load(), metric)
    kept = OBSERVED[metric]
    assert (found.total, found.replies) == (pytest.approx(kept.total, abs=5e-4), kept.replies)
    assert found.between == (None if kept.between is None else pytest.approx(kept.between, abs=5e-4))
    assert found.share is kept.share and (
        baseline == (5 / 12 if folder == CUDA_RUN else 1.0) or not kept.share
    )


def test_the_scatter_of_replies_is_taken_off_in_a_run_with_repeats() -> None:
    """Differences (5.5, 0, 5.5, ...) ln 2 have the variance 9.075; that of replies is 0.375."""
    tasks, trials = make.families(6), []
    for index, (task, repeat) in enumerate(itertools.product(tasks, range(2))):
        helped = index // 2 % 2 == 0
        once = {"speedup": 2.0} if repeat == 0 else None
        for arm, graded in ((make.WITHOUT, once), (make.WITH, {"speedup": 64.0} if helped else once)):
            result = WRONG if graded is None else ()
            trials.append(make.trial(task, arm, *result, repeat=repeat, **(graded or {})))
    run = make.run(tasks, repeats=2)
    spread, _ = observed_spread(run, trials, "deployed")
    assert (spread.total / math.log(2)) ** 2 == pytest.approx(9.075)
    assert spread.between is not None
    assert (spread.between / math.log(2)) ** 2 == pytest.approx(9.075 - 0.375)
    assert spread.sd(2.0) == pytest.approx(spread.total) and spread.sd(9.0) < spread.total
    shares, baseline = observed_spread(run, trials, "correct")
    assert (shares.total**2, shares.between, shares.replies) == (pytest.approx(0.075), 0.0, 2.0)
    assert baseline == 0.5


def test_replies_that_are_not_separated_give_the_least_and_the_most() -> None:
    """sd 0.4 of single replies: with 4, from 0.2 (all of it from replies) to 0.4 (none of it)."""
    single = Spread(source="", total=0.4, replies=1.0, between=None, share=False)
    assert (single.least_sd(4.0), single.sd(4.0), single.sd(0.25)) == (0.2, 0.4, 0.8)
    plan = sizing(spread=single).plan(None)
    assert plan.needed is not None and plan.least_families is not None
    assert plan.least_families < plan.needed.families
    share = Spread(source="", total=0.3, replies=1.0, between=0.1, share=True)
    assert share.sd(4.0, 0.2) == share.least_sd(4.0, 0.2) == pytest.approx(math.sqrt(0.01 + 0.48 / 4))
    rows = [sizing("compiles", spread=share, baseline=p, effect=0.2).plan(None).needed for p in (None, 0.0)]
    assert rows[0] is not None and rows[1] is not None and rows[0].families > rows[1].families
    assert (
        sizing("compiles", spread=share, baseline=0.95, effect=None).size(6).smallest_effect is None
    )  # above 100 %


@pytest.mark.parametrize(
    ("metric", "families", "said"),
    [
        ("deployed", 5, "nothing can be decided: at least 6 families"),
        ("deployed", 25, "(planned sd 0.35 of the log ratio) a true lift in deployed of x1.23 is detected"),
        ("compiles", 25, "a true lift in compiles of 19 points is detected with 80% power."),
    ],
)
def test_a_plan_states_what_it_can_detect(metric: str, families: int, said: str) -> None:
    """One task per family, 5 replies."""
    assert said in detectable(metric, [f"f{i}" for i in range(families)], 5).statement


def test_costs_come_from_the_run_and_unknown_stays_unknown() -> None:
    """1,000 + 3,000 tokens and $0.02 a trial; one reply without a count makes both unknown."""
    run, trials, _ = small_study()
    for found in costs_of_run(run, trials):
        assert (found.tokens, found.dollars(None)) == (4_000.0, pytest.approx(0.02))
        assert found.dollars(PRICE) == pytest.approx(0.016)
    trials[0] = make.trial("l1/f0t0", make.WITHOUT, *WRONG, answer=make.reply(None, None))
    blind, _ = costs_of_run(run, trials)
    assert [blind.tokens, blind.dollars(None), blind.dollars(PRICE)] == [None] * 3
