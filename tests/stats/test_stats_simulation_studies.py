"""Simulated studies through the report's own decisions: placebos, several skills, looks, leaks, turns.

Every simulation is seeded; bounds leave room for chance: with n studies a share p has the standard error
sqrt(p (1 - p) / n).

A family has one task; its chance to be correct is drawn per family, a skill's effect on it varies from
family to family around its mean, and repeats are Bernoulli draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from harness import stats
from harness.outcome import Cause, Verdict
from harness.records import Arm, RunConfig
from harness.report.comparisons import conclusions
from harness.report.records import Summary, Usages
from harness.report.scoring import Score
from harness.report.study import Study
from harness.report.summary import summarise
from harness.stats import Lift, Observation, paired_lift
from harness.stats.decision import decide
from tests.report import factories as make
from tests.report import studies

Note = Callable[[str, object], None]
"""Keeps a simulated share in the junit file."""
REPEATS = 3
_EMPTY = Usages(input_tokens=None, output_tokens=None, cost_usd=None)


def _score(family: int, arm: str, correct: bool) -> Score:
    return Score(
        task=f"l1/f{family}t0",
        family=f"f{family}",
        model=make.MODEL,
        arm=arm,
        compiled=True,
        correct=correct,
        speedup=1.0 if correct else None,
        distinguishable=False,
        noisy=False,
        usage=_EMPTY,
        verdict=Verdict.CORRECT if correct else Verdict.WRONG_RESULT,
        cause=Cause.PASSED if correct else Cause.WRONG_VALUES,
    )


def _config(n_families: int, arms: Sequence[Arm]) -> RunConfig:
    tasks = make.families(n_families)
    return make.run(tasks, arms=tuple(arms), repeats=REPEATS, metric="correct").config


def _study(
    config: RunConfig, empty: Summary, effects: Mapping[str, float], rng: np.random.Generator
) -> Study:
    """effects: arm id to its mean effect on the chance to be correct."""
    scores: dict[tuple[str, str], list[Score]] = {(make.MODEL, arm.id): [] for arm in config.arms}
    for family in range(len(config.tasks)):
        level = rng.uniform(0.2, 0.6)
        for arm in config.arms:
            spread = 0.0 if arm.kind == "without_skill" else rng.normal(0.0, 0.1)
            chance = min(1.0, max(0.0, level + effects[arm.id] + spread))
            solved = rng.random(REPEATS) < chance
            scores[make.MODEL, arm.id] += [_score(family, arm.id, bool(one)) for one in solved]
    summaries = {(a.model, a.arm): a for a in empty.arms}
    return Study(config, scores, {}, {}, summaries, None, None)


def _helps(config: RunConfig, effects: Mapping[str, float], n_studies: int, seed: int) -> list[bool]:
    """Whether any decision of a study is `helps`."""
    rng = np.random.default_rng(seed)
    run = make.run(make.families(len(config.tasks)), arms=config.arms, repeats=REPEATS, metric="correct")
    empty = summarise(run, [], run.lock.families)
    decided = [conclusions(_study(config, empty, effects, rng)) for _ in range(n_studies)]
    return [any(made.decision == "helps" for made in one) for one in decided]


def test_text_that_helps_like_any_text_is_not_called_helpful(record_property: Note) -> None:
    """A skill and its placebo both add 25 points: against the placebo nothing is left, and that decides."""
    arms = (make.WITHOUT, make.WITH, make.PLACEBO)
    effects = {make.WITHOUT.id: 0.0, make.WITH.id: 0.25, make.PLACEBO.id: 0.25}
    found = _helps(_config(10, arms), effects, 200, seed=11)
    record_property("skill no better than its placebo called helps, 10 families", float(np.mean(found)))
    assert np.mean(found) <= 0.05
    naive = _helps(_config(10, arms[:2]), effects, 100, seed=11)
    assert np.mean(naive) >= 0.25  # without a placebo the same text is often called helpful


def test_three_useless_skills_are_rarely_called_helpful(record_property: Note) -> None:
    """Two skills and both together, none of any use: one of the three decisions helps in at most 5%."""
    arms = (make.WITHOUT, make.WITH, studies.ONLY_OTHER, studies.BOTH)
    found = _helps(_config(10, arms), dict.fromkeys((arm.id for arm in arms), 0.0), 200, seed=12)
    record_property("any of three null skills called helps, Holm, 10 families", float(np.mean(found)))
    assert np.mean(found) <= 0.05


def _lift(rng: np.random.Generator, n: int, mean: float, sd: float, alpha: float) -> Lift:
    """The lift of n families whose differences are normal."""
    seen = []
    for family, difference in enumerate(rng.normal(mean, sd, n)):
        names = f"f{family}", f"t{family}"
        seen += [Observation(*names, "treatment", difference), Observation(*names, "control", 0.0)]
    return paired_lift(seen, 1.0 - alpha)


def test_looking_again_at_halved_levels_keeps_the_error_below_5_percent(record_property: Note) -> None:
    """Six looks at 0.05 / 2^k: a null skill helps in at most 5% of lineages; at 0.05 each in far more."""
    rng = np.random.default_rng(13)
    halved, plain = 0, 0
    for _ in range(400):
        levels = [(0.05 / 2**k, 0.05) for k in range(1, 7)]
        looks = [(_lift(rng, 12, 0.0, 1.0, small), small) for small, _ in levels]
        halved += any(decide(lift, alpha=small).decision == "helps" for lift, small in looks)
        plain += any(
            lift.p_value is not None and lift.p_value < usual and (lift.lift or 0.0) > 0.0
            for (lift, _), (_, usual) in zip(looks, levels, strict=True)
        )
    record_property("null called helps at any of six looks, alpha / 2^k", halved / 400)
    record_property("null called helps at any of six looks, alpha 0.05 each", plain / 400)
    assert halved / 400 <= 0.05
    assert plain / 400 >= 0.09


@pytest.mark.parametrize(("effect", "sd", "families"), [(0.24, 0.3, 15), (0.36, 0.5, 18)])
def test_a_study_of_the_planned_size_finds_the_effect(
    effect: float,
    sd: float,
    families: int,
    record_property: Note,
) -> None:
    """With the families that `plan` asks for, the effect is found in 80% of studies, within 6 points."""
    assert stats.units_needed(effect, sd) == families
    rng = np.random.default_rng(14)
    lifts = [_lift(rng, families, effect, sd, 0.05) for _ in range(800)]
    found = [decide(lift).decision == "helps" for lift in lifts]
    record_property(f"effect {effect} at sd {sd} found by {families} families", float(np.mean(found)))
    assert 0.74 <= np.mean(found) <= 0.86  # standard error 0.014, and up to 2 points for the sign-flip test


def test_a_leak_would_pass_for_a_skill(record_property: Note) -> None:
    """A useless skill that holds the answer to 8 of 16 tasks: helps if they count, not if left out."""
    rng = np.random.default_rng(15)
    tasks = make.families(16)
    leaked = dict.fromkeys(list(tasks)[:8], "skill/references/a.md")
    run = make.run(tasks, repeats=1, metric="correct")
    careful = run.model_copy(update={"lock": run.lock.model_copy(update={"leaked": leaked})})
    counted, left_out = [], []
    for _ in range(25):
        trials = []
        for task in tasks:
            for arm in (make.WITHOUT, make.WITH):
                known = task in leaked and arm is make.WITH
                cause = Cause.PASSED if known or rng.random() < 0.2 else Cause.WRONG_VALUES
                trials.append(make.trial(task, arm, cause, "w"))
        counted.append(summarise(run, trials, tasks).comparisons[0].conclusion.decision)
        left_out.append(summarise(careful, trials, tasks).comparisons[0].conclusion.decision)
    record_property("null skill with 8 of 16 tasks leaked called helps, counted", counted.count("helps") / 25)
    record_property("the same, leaked tasks left out", left_out.count("helps") / 25)
    assert counted.count("helps") >= 12
    assert left_out.count("helps") <= 3  # at 5%, more than 3 of 25 has the chance 0.034


def test_a_head_start_that_repair_makes_up_for_is_no_help() -> None:
    """With the skill right at once, without it right after one repair: turn 1 differs, the last decides."""
    rng = np.random.default_rng(16)
    tasks = make.families(10)
    run = make.run(tasks, turns=2, metric="correct", repeats=2)
    made = []
    for _ in range(20):
        trials = []
        for task in tasks:
            for repeat in range(2):
                for arm, early in ((make.WITHOUT, 0.1), (make.WITH, 0.8)):
                    first = rng.random() < early
                    second = first or rng.random() < (0.85 - early) / (1.0 - early)
                    outcomes = [(Cause.PASSED if ok else Cause.WRONG_VALUES, 1.0) for ok in (first, second)]
                    taken = outcomes[:1] if first else outcomes
                    trials.append(studies.trial_of_turns(task, arm, taken, repeat=repeat))
        made.append(summarise(run, trials, tasks).comparisons[0])
    first_turns = [comparison.turns[0] for comparison in made]
    assert sum(point.low is not None and point.low > 0.0 for point in first_turns) >= 18
    assert sum(comparison.conclusion.decision == "helps" for comparison in made) <= 3
