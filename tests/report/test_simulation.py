"""Planning by simulation: against formulas, against studies through a whole report, and its own limits."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from harness import stats
from harness.outcome import Cause, Verdict
from harness.records import Arm, ModelSpec
from harness.report.comparisons import conclusions
from harness.report.records import Usages
from harness.report.scoring import Score
from harness.report.simulation import MOST_FAMILIES, Design, Simulation
from harness.report.study import Study
from harness.report.summary import summarise
from tests.report import factories as make

Note = Callable[[str, object], None]
_EMPTY = Usages(input_tokens=None, output_tokens=None, cost_usd=None)


@pytest.mark.parametrize("families", [7, 12, 16, 30])
def test_lifts_of_many_studies_are_those_of_one(families: int) -> None:
    """The same mean and p as `paired_lift`: p exactly up to 12 families, else within its error."""
    rows = np.random.default_rng(1).normal(0.45, 1.0, (12, families))
    for row, made in zip(rows, stats.lifts_of_studies(rows, 0.95, 0.01), strict=True):
        seen = []
        for family, value in enumerate(row):
            names = f"f{family}", f"t{family}"
            seen += [stats.Observation(*names, "treatment", value), stats.Observation(*names, "control", 0.0)]
        one = stats.paired_lift(seen)
        assert made.lift == pytest.approx(one.lift)
        assert one.p_value is not None and made.n_different == one.n_different
        if families <= 12:
            assert made.p_value == one.p_value
        else:
            # Below 0.2 from 2,500 flips, above it from 200: four standard errors.
            flips = 2_500 if one.p_value < 0.15 else 200
            error = (one.p_value * (1.0 - one.p_value) / flips) ** 0.5
            assert made.p_value == pytest.approx(one.p_value, abs=4.0 * error + 2.0 / flips)


def test_a_level_far_below_is_resolved() -> None:
    """Where p must be below 1e-4 there are enough flips for it: a clear study has one that is smaller."""
    (made,) = stats.lifts_of_studies(np.random.default_rng(2).normal(2.0, 1.0, (1, 30)), 0.95, 1e-4)
    assert made.p_value is not None and made.p_value < 1e-4


@pytest.mark.parametrize("shape", [(3, 1), (0, 5)])
def test_too_little_is_refused(shape: tuple[int, int]) -> None:
    """No study, or one family."""
    with pytest.raises(ValueError, match="lifts_of_studies"):
        stats.lifts_of_studies(np.ones(shape), 0.95, 0.05)


@pytest.mark.parametrize("families", [15, 30])
def test_one_comparison_agrees_with_the_formula(families: int) -> None:
    """Without placebo the t approximation holds from 15 families up: within 3 errors and 2 points."""
    simulation = Simulation(Design(), 0.05)
    for power in (0.5, 0.8):
        effect = stats.smallest_effect(1.0, families, power)
        assert effect is not None
        found = simulation.power(effect, families)
        assert found == pytest.approx(power, abs=3.0 * simulation.error(power) + 0.02)


def test_holm_alone_agrees_with_the_formula_at_its_level() -> None:
    """One of four comparisons with an effect must pass alpha / 4: the formula at that level."""
    simulation = Simulation(Design(skills=2, models=2), 0.05)
    effect = stats.smallest_effect(1.0, 25, 0.8, 0.05 / 4)
    assert effect is not None
    assert simulation.power(effect, 25) == pytest.approx(0.8, abs=3.0 * simulation.error(0.8) + 0.02)


def test_too_few_families_find_nothing_whatever_the_effect() -> None:
    """Two decisions: 2 / 2^6 is not below 0.025, so seven families; look 1 of four decisions: nine."""
    assert [Simulation(Design(skills=n), 0.05).least for n in (1, 2, 4)] == [6, 7, 8]
    assert Simulation(Design(skills=2, models=2), 0.025).least == 9
    two = Simulation(Design(skills=2), 0.05)
    assert (two.power(50.0, 6), two.smallest_effect(6, 0.8)) == (0.0, None)
    assert two.everywhere(50.0, 6).each == 0.0
    assert two.power(50.0, 7) == two.everywhere(50.0, 7).all == 1.0


def test_a_placebo_costs_power_and_useless_skills_are_rarely_found() -> None:
    """Both tests must pass; without effect one of three skills helps in far less than 5%."""
    plain, careful = Simulation(Design(), 0.05), Simulation(Design(placebo=True), 0.05)
    assert careful.power(0.7, 16) < plain.power(0.7, 16) - 0.05
    nothing = Simulation(Design(skills=3, placebo=True), 0.05).everywhere(0.0, 12)
    assert nothing.each <= 0.02 and nothing.all == 0.0


def test_the_same_plan_gives_the_same_figures() -> None:
    """Seeds are fixed, and what was asked before changes nothing."""
    design = Design(skills=2, placebo=True)
    used, fresh = Simulation(design, 0.05), Simulation(design, 0.05)
    used.smallest_effect(14, 0.8)
    used.everywhere(0.9, 9)
    assert used.power(0.9, 9) == fresh.power(0.9, 9)
    assert used.studies == 1_000 and used.error(0.8) == pytest.approx(0.0126, abs=1e-4)


def test_sizes_and_effects_answer_each_other() -> None:
    """The families for an effect have the power; the smallest effect at that size is about that effect."""
    simulation = Simulation(Design(skills=2, placebo=True), 0.05)
    families = simulation.families_needed(0.8, 0.8)
    assert families is not None
    assert simulation.power(0.8, families) >= 0.8 > simulation.power(0.8, families - 3)
    assert simulation.smallest_effect(families, 0.8) == pytest.approx(0.8, rel=0.05)
    assert simulation.families_needed(0.1, 0.8) is None  # more than MOST_FAMILIES
    assert MOST_FAMILIES == 400


def _score(family: int, model: str, arm: str, value: float) -> Score:
    """A correct trial whose deployed score is value + 5: far from 0, where the score is cut off."""
    return Score(
        task=f"l1/f{family}t0",
        family=f"f{family}",
        model=model,
        arm=arm,
        compiled=True,
        correct=True,
        speedup=float(np.exp(5.0 + value)),
        distinguishable=True,
        noisy=False,
        usage=_EMPTY,
        verdict=Verdict.CORRECT,
        cause=Cause.PASSED,
    )


@pytest.mark.parametrize("everywhere", [False, True])
def test_whole_reports_find_as_much_as_planned(everywhere: bool, record_property: Note) -> None:
    """2 skills x 2 models with placebos, 10 families: scores drawn here and decided by the report itself."""
    models, families, studies, effect = (make.MODEL, make.OTHER), 10, 250, 1.2 if everywhere else 1.5
    skills = [Arm(kind="with_skill", skills=(digit * 64,)) for digit in "56"]
    placebos = [Arm(kind="placebo", skills=(digit * 64,)) for digit in "89"]
    tasks = make.families(families)
    run = make.run(
        tasks, arms=(make.WITHOUT, *skills, *placebos), models=tuple(ModelSpec(name=m) for m in models)
    )
    empty = {(a.model, a.arm): a for a in summarise(run, [], tasks).arms}
    rng, helped = np.random.default_rng(31), []
    for _ in range(studies):
        scores: dict[tuple[str, str], list[Score]] = {}
        for model, arm in itertools.product(models, run.config.arms):
            has = arm in skills and (everywhere or (model, arm) == (models[0], skills[0]))
            values = rng.normal(effect if has else 0.0, 0.5**0.5, families)
            scores[model, arm.id] = [_score(i, model, arm.id, v) for i, v in enumerate(values)]
        made = conclusions(Study(run.config, scores, {}, {}, empty, None, None))
        helped.append([one.decision == "helps" for one in made])
    simulation = Simulation(Design(skills=2, models=2, placebo=True), 0.05)
    planned = simulation.power(effect, families)
    if everywhere:
        found = simulation.everywhere(effect, families)
        planned = found.each
        assert np.mean([all(one) for one in helped]) == pytest.approx(found.all, abs=0.11)
    share = float(np.mean(helped)) if everywhere else float(np.mean([one[0] for one in helped]))
    record_property(f"planned {planned:.3f}, found by whole reports, everywhere={everywhere}", share)
    # Three standard errors of both shares, at most 0.032 and 0.018.
    assert 0.3 < planned < 0.95 and share == pytest.approx(planned, abs=0.11)
