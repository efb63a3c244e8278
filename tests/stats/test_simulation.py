"""Simulated studies with a known truth, through `paired_lift`, `decide` and whole reports.

Every simulation is seeded; bounds leave room for chance: with n studies a share p has the standard error
sqrt(p (1 - p) / n).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from harness import stats
from harness.stats import Lift, Observation, decide, paired_lift
from harness.stats.timing_interval import mean_interval
from tools.inference_figures import (
    COVERAGE,
    COVERED,
    DECIDED,
    DECISIONS,
    STUDIES,
    Floats,
    Population,
    Row,
    Studies,
    family_differences,
    simulate,
)

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "statistics.md"
REDUCED = 120
"""Studies in a run of the program here; the document has STUDIES."""
Note = Callable[[str, object], None]


def _observations(studies: Studies, index: int) -> list[Observation]:
    """The raw repeats of one study, as `paired_lift` gets them from a run."""
    found: list[Observation] = []
    for family, task in zip(*np.nonzero(studies.repeats[index]), strict=True):
        n = int(studies.repeats[index, family, task])
        names = f"family{family}", f"task{family}.{task}"
        solved = round(studies.with_skill[index, family, task] * n)
        solved_without = round(studies.without_skill[index, family, task] * n)
        for repeat in range(n):
            found.append(Observation(*names, "treatment", float(repeat < solved)))
            found.append(Observation(*names, "control", float(repeat < solved_without)))
    return found


def _published(label: str) -> list[float]:
    """The shares in a row of docs/statistics.md."""
    (line,) = [x for x in DOCUMENT.read_text("utf-8").splitlines() if x.startswith(f"| {label} |")]
    return [float(value) / 100 for value in re.findall(r"([0-9.]+)%", line.removeprefix(f"| {label} |"))]


@pytest.mark.parametrize(
    ("row", "counts"),
    [(row, DECIDED) for row in DECISIONS] + [(row, COVERED) for row in COVERAGE],
    ids=lambda value: getattr(value, "label", ""),
)
def test_the_published_figures_are_those_of_the_program(row: Row, counts: tuple[int, ...]) -> None:
    """Reduced runs agree within four standard errors; false `helps` stay within half of alpha."""
    for n, published in zip(counts, _published(row.label), strict=True):
        found = row.figures(REDUCED, n)
        share = min(1.0 - 0.5 / REDUCED, max(0.5 / REDUCED, (found + published) / 2))
        error = (share * (1.0 - share) * (1 / REDUCED + 1 / STUDIES)) ** 0.5
        assert found == pytest.approx(published, abs=4.0 * error + 0.006)
        if row.label.startswith("no effect"):
            assert published <= 0.025


@pytest.mark.slow
@pytest.mark.parametrize(("lift", "n_families", "base_rate"), [(0.1, 10, 0.5), (0.0, 6, 0.5), (0.0, 10, 0.2)])
def test_raw_repeats_cover_the_true_lift_and_null_skills_rarely_help(
    lift: float, n_families: int, base_rate: float, record_property: Note
) -> None:
    """`paired_lift` from raw repeats covers in 93-97% of studies; without an effect 2.5% at most help."""
    studies = simulate(Population(base_rate=base_rate, lift=lift), 2_000, n_families, seed=5)
    lifts = [paired_lift(_observations(studies, index), shares=True) for index in range(2_000)]
    if lift:
        covered = [(one := each.interval) is not None and one.low <= lift <= one.high for each in lifts]
        record_property("coverage, paired_lift, 10 families, base rate 0.5", float(np.mean(covered)))
        assert 0.93 <= np.mean(covered) <= 0.97
        return
    called = [decide(each).decision for each in lifts]
    helps, hurts = called.count("helps") / 2_000, called.count("hurts") / 2_000
    record_property(f"null called helps, {n_families} families, base rate {base_rate}", helps)
    assert helps <= 0.025 + 3 * 0.0035  # Monte-Carlo standard error 0.0035
    assert helps + hurts <= 0.065


def test_inference_by_task_raises_false_alarms(record_property: Note) -> None:
    """With 30 tasks in 6 families, a t interval by task calls a null skill far too often significant."""
    studies = simulate(Population(lift=0.0, family_lift_sd=1.0), 4_000, 6, seed=8, tasks=(5, 5))
    by_task: Floats = (studies.with_skill - studies.without_skill).reshape(4_000, 30)
    intervals = [mean_interval(row).interval for row in by_task.tolist()]
    alarms = float(np.mean([one is not None and not one.low <= 0.0 <= one.high for one in intervals]))
    record_property("null significant by task, 30 tasks in 6 families", alarms)
    by_family = [stats.sign_flip(row).p_value <= 0.05 for row in family_differences(studies).tolist()]
    assert alarms > 0.12 and np.mean(by_family) < 0.065


# Several decisions, looks and leaks


def _helps(rng: np.random.Generator, effects: Sequence[float], placebo: float | None = None) -> bool:
    """Whether any skill of one study helps; effects: of each skill on the chance to be correct."""
    levels = rng.uniform(0.2, 0.6, 10)

    def arm(effect: float, sd: float = 0.1) -> Floats:
        chances = np.clip(levels + effect + rng.normal(0.0, sd, 10), 0.0, 1.0)
        return np.asarray(rng.binomial(3, chances) / 3)

    control = arm(0.0, 0.0)
    other = None if placebo is None else arm(placebo)
    made = []
    for effect in effects:
        treated = arm(effect)
        made.append((_lift(treated - control), None if other is None else _lift(treated - other)))
    adjusted = stats.adjusted_together(made)
    return any(
        decide(lift, placebo=second, p_adjusted=p).decision == "helps"
        for (lift, second), p in zip(made, adjusted, strict=True)
    )


def _lift(differences: Floats, alpha: float = 0.05) -> Lift:
    """The lift of families with these differences."""
    seen = []
    for family, difference in enumerate(differences):
        names = f"f{family}", f"t{family}"
        seen += [Observation(*names, "treatment", difference), Observation(*names, "control", 0.0)]
    return paired_lift(seen, 1.0 - alpha)


def test_a_placebo_and_useless_skills_are_rarely_called_helpful(record_property: Note) -> None:
    """Against a placebo that adds as much, nothing is left; nor of one of three null skills under Holm."""
    rng = np.random.default_rng(11)
    useless = float(np.mean([_helps(rng, [0.0] * 3) for _ in range(300)]))
    record_property("any of three null skills called helps, Holm, 10 families", useless)
    assert useless <= 0.05
    share = float(np.mean([_helps(rng, [0.25], placebo=0.25) for _ in range(300)]))
    record_property("skill no better than its placebo called helps, 10 families", share)
    assert share <= 0.05
    assert np.mean([_helps(rng, [0.25]) for _ in range(100)]) >= 0.25


def test_looking_again_at_halved_levels_keeps_the_error_below_5_percent(record_property: Note) -> None:
    """Six looks at 0.05 / 2^k: a null skill helps in at most 5% of lineages; at 0.05 each in far more."""
    rng = np.random.default_rng(13)
    halved, plain = 0, 0
    for _ in range(400):
        rows = rng.normal(0.0, 1.0, (6, 12))
        halved += any(
            decide(_lift(row, 0.05 / 2**k), alpha=0.05 / 2**k).decision == "helps"
            for k, row in enumerate(rows, start=1)
        )
        plain += any(decide(_lift(row)).decision == "helps" for row in rows)
    record_property("null called helps at any of six looks, alpha / 2^k", halved / 400)
    record_property("null called helps at any of six looks, alpha 0.05 each", plain / 400)
    assert halved / 400 <= 0.05
    assert plain / 400 >= 0.09


@pytest.mark.slow
@pytest.mark.parametrize(("effect", "sd", "families"), [(0.24, 0.3, 15), (0.36, 0.5, 18)])
def test_a_study_of_the_planned_size_finds_the_effect(
    effect: float, sd: float, families: int, record_property: Note
) -> None:
    """With the families that `plan` asks for, the effect is found in 80% of studies, within 6 points."""
    assert stats.families_needed(effect, sd) == families
    rng = np.random.default_rng(14)
    lifts = [_lift(row) for row in rng.normal(effect, sd, (800, families))]
    found = [decide(lift).decision == "helps" for lift in lifts]
    record_property(f"effect {effect} at sd {sd} found by {families} families", float(np.mean(found)))
    assert 0.74 <= np.mean(found) <= 0.86  # standard error 0.014, and up to 2 points for the sign-flip test
