"""Simulated studies with a known truth: does the inference by family keep its promises?

Owns: coverage of the interval, false alarms of the decision, and the evidence against inference
by task. Does not own: single formulas (test_stats.py). Invariant: every simulation is seeded, and
the vectorised estimator used for speed is itself compared with `paired_lift`.

A study has families of 2-5 tasks, each with 3-5 Bernoulli repeats per arm. On the logit scale

    without = mu + A_family + B_task        with = without + delta + D_family + E_task

so tasks of a family share both their level (A) and their lift (D). The true lift is the mean over
the population of families, in probability, by Gauss-Hermite quadrature.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from harness.decision import decide
from harness.stats import Lift, Observation, paired_lift
from harness.student_t import t_ppf

Floats = npt.NDArray[np.float64]
Figure = Callable[[str, float], None]


@dataclass(frozen=True)
class Population:
    """Where families come from: the two true rates, and the logit-scale spreads of A, B, D, E."""

    base_rate: float = 0.5
    lift: float = 0.1
    family_sd: float = 0.8
    task_sd: float = 0.6
    family_lift_sd: float = 0.5
    task_lift_sd: float = 0.4


@dataclass(frozen=True)
class Studies:
    """Many studies: rates per arm and repeats of each task, all (studies, families, tasks).

    Where `repeats` is 0 the family has no such task.
    """

    with_skill: Floats
    without_skill: Floats
    repeats: npt.NDArray[np.int64]


def _logistic(x: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-x))


def _logit_mean(rate: float, sd: float) -> float:
    """The m for which a logit-normal(m, sd) probability has the mean `rate`."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = float(weights @ _logistic(middle + sd * nodes)) < rate
        low, high = (middle, high) if below else (low, middle)
    return middle


def _simulate(
    population: Population,
    n_studies: int,
    n_families: int,
    seed: int,
    tasks: tuple[int, int] = (2, 5),
) -> Studies:
    """Draw studies; `tasks` bounds the number of tasks in a family."""
    rng = np.random.default_rng(seed)
    p = population
    level_sd = float(np.hypot(p.family_sd, p.task_sd))
    lift_sd = float(np.hypot(p.family_lift_sd, p.task_lift_sd))
    mu = _logit_mean(p.base_rate, level_sd)
    delta = _logit_mean(p.base_rate + p.lift, float(np.hypot(level_sd, lift_sd))) - mu
    family = (n_studies, n_families, 1)
    task = (n_studies, n_families, tasks[1])
    without = mu + p.family_sd * rng.standard_normal(family)
    without = without + p.task_sd * rng.standard_normal(task)
    shift = delta + p.family_lift_sd * rng.standard_normal(family)
    shift = shift + p.task_lift_sd * rng.standard_normal(task)
    present = np.arange(tasks[1]) < rng.integers(tasks[0], tasks[1] + 1, size=family)
    repeats = rng.integers(3, 6, size=task)
    solved = rng.binomial(repeats, _logistic(without + shift))
    solved_without = rng.binomial(repeats, _logistic(without))
    return Studies(solved / repeats, solved_without / repeats, np.where(present, repeats, 0))


def _family_differences(studies: Studies) -> Floats:
    """(studies, families): mean over the tasks of a family of with - without."""
    present = studies.repeats > 0
    difference = np.where(present, studies.with_skill - studies.without_skill, 0.0)
    means: Floats = difference.sum(axis=2) / present.sum(axis=2)
    return means


def _intervals(units: Floats, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Bounds of the t interval of each row of units: (studies, units)."""
    n = units.shape[1]
    mean = units.mean(axis=1)
    half = t_ppf(0.5 + confidence / 2, n - 1) * units.std(axis=1, ddof=1) / np.sqrt(n)
    return mean - half, mean + half


def _coverage(units: Floats, truth: float) -> float:
    low, high = _intervals(units)
    return float(np.mean((low <= truth) & (truth <= high)))


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


def _real_lifts(population: Population, n_studies: int, n_families: int, seed: int) -> list[Lift]:
    studies = _simulate(population, n_studies, n_families, seed)
    return [paired_lift(_observations(studies, index)) for index in range(n_studies)]


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Print a simulated share (pytest -s) and keep it in the junit file."""

    def note(name: str, share: float) -> None:
        record_property(name, share)
        print(f"\n{name}: {share:.2%}", end="")

    return note


def test_the_vectorised_estimator_agrees_with_paired_lift() -> None:
    """The fast estimator of this file gives the lift and interval of `paired_lift` on raw repeats."""
    for n_families in (6, 13):
        studies = _simulate(Population(), 40, n_families, seed=1)
        differences = _family_differences(studies)
        low, high = _intervals(differences)
        for index in range(40):
            lift = paired_lift(_observations(studies, index))
            assert lift.interval is not None
            expected = [differences[index].mean(), low[index], high[index]]
            assert [lift.lift, lift.interval.low, lift.interval.high] == pytest.approx(expected, abs=1e-12)
            assert lift.n_tasks == np.count_nonzero(studies.repeats[index])


@pytest.mark.parametrize("base_rate", [0.2, 0.5, 0.8])
def test_simulated_studies_have_the_true_rates_we_ask_for(base_rate: float) -> None:
    """The known truth is the truth: over very many families both arms have their stated mean."""
    studies = _simulate(Population(base_rate=base_rate), 2_000, 40, seed=2, tasks=(3, 3))
    # 80,000 families with a spread of at most 0.3 each: standard error about 0.001.
    assert float(studies.without_skill.mean()) == pytest.approx(base_rate, abs=0.004)
    assert float(studies.with_skill.mean()) == pytest.approx(base_rate + 0.1, abs=0.004)


@pytest.mark.parametrize("base_rate", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("n_families", [10, 20, 40])
def test_the_family_interval_covers_the_true_lift(base_rate: float, n_families: int, figure: Figure) -> None:
    """The 95% interval by family holds the true lift in 93-97% of studies with clustered tasks."""
    studies = _simulate(Population(base_rate=base_rate), 10_000, n_families, seed=3)
    coverage = _coverage(_family_differences(studies), 0.1)
    figure(f"coverage, {n_families} families, base rate {base_rate}", coverage)
    assert 0.93 <= coverage <= 0.97  # Monte-Carlo standard error 0.0022


@pytest.mark.parametrize("lift", [0.0, 0.3])
def test_coverage_holds_for_no_effect_and_for_a_large_one(lift: float, figure: Figure) -> None:
    """Coverage stays within 93-97% where the lift is zero and where it is 30 points."""
    studies = _simulate(Population(base_rate=0.2, lift=lift), 10_000, 10, seed=4)
    coverage = _coverage(_family_differences(studies), lift)
    figure(f"coverage, 10 families, base rate 0.2, lift {lift}", coverage)
    assert 0.93 <= coverage <= 0.97


def test_paired_lift_itself_covers_the_true_lift(figure: Figure) -> None:
    """The interval that `paired_lift` returns from raw repeats covers in 93-97% of studies."""
    intervals = [lift.interval for lift in _real_lifts(Population(), 2_000, 10, seed=5)]
    covered = [found is not None and found.low <= 0.1 <= found.high for found in intervals]
    figure("coverage, paired_lift, 10 families, base rate 0.5", float(np.mean(covered)))
    assert 0.93 <= np.mean(covered) <= 0.97


@pytest.mark.parametrize(("n_families", "base_rate"), [(6, 0.5), (10, 0.2), (10, 0.5), (10, 0.8)])
def test_a_null_skill_is_rarely_called_helpful(n_families: int, base_rate: float, figure: Figure) -> None:
    """A skill whose mean effect is zero is called `helps` in at most 5% of studies by `decide`."""
    lifts = _real_lifts(Population(base_rate=base_rate, lift=0.0), 2_000, n_families, seed=6)
    called = [decide(lift).decision for lift in lifts]
    helps, hurts = called.count("helps") / len(called), called.count("hurts") / len(called)
    figure(f"null called helps, {n_families} families, base rate {base_rate}", helps)
    figure(f"null called hurts, {n_families} families, base rate {base_rate}", hurts)
    assert helps <= 0.05
    assert helps + hurts <= 0.07


def test_a_strong_skill_is_called_helpful(figure: Figure) -> None:
    """The rule is not just silent: a lift of 30 points in 10 families is nearly always found."""
    lifts = _real_lifts(Population(base_rate=0.2, lift=0.3), 500, 10, seed=7)
    helps = [decide(lift).decision == "helps" for lift in lifts]
    figure("lift of 30 points called helps, 10 families", float(np.mean(helps)))
    assert np.mean(helps) >= 0.9


def test_a_t_interval_by_task_raises_false_alarms(figure: Figure) -> None:
    """With 30 tasks in 6 families, inference by task calls a null skill far too often significant."""
    population = Population(lift=0.0, family_lift_sd=1.0)
    studies = _simulate(population, 10_000, 6, seed=8, tasks=(5, 5))
    by_task = (studies.with_skill - studies.without_skill).reshape(10_000, 30)
    alarms_by_task = 1.0 - _coverage(by_task, 0.0)
    alarms_by_family = 1.0 - _coverage(_family_differences(studies), 0.0)
    figure("null significant by task, 30 tasks in 6 families", alarms_by_task)
    figure("null significant by family, 30 tasks in 6 families", alarms_by_family)
    assert alarms_by_task > 0.12
    assert alarms_by_family < 0.065
