"""The tables of docs/statistics.md on inference by family, from simulated studies.

`python -m tools.inference_figures [STUDIES]` prints them. A study has families of a few tasks, each with a
few Bernoulli repeats per arm. On the logit scale

    without = mu + A_family + B_task        with = without + delta + D_family + E_task

so tasks of a family share both their level (A) and their lift (D). The true lift is the mean over the
population of families, in probability, by Gauss-Hermite quadrature. Every draw is seeded. The tables use one
task of five runs per family.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness import stats

Floats = npt.NDArray[np.float64]
STUDIES = 2_000
RUNS = 5
DECIDED = (6, 7, 12, 25)
COVERED = (6, 12, 25)
_ALPHA = 0.05


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


def logistic(x: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-x))


def logit_mean(rate: float, sd: float) -> float:
    """The m for which a logit-normal(m, sd) probability has the mean `rate`."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = float(weights @ logistic(middle + sd * nodes)) < rate
        low, high = (middle, high) if below else (low, middle)
    return middle


def simulate(
    population: Population,
    n_studies: int,
    n_families: int,
    seed: int,
    tasks: tuple[int, int] = (2, 5),
    runs: tuple[int, int] = (3, 5),
) -> Studies:
    """Draw studies; `tasks` bounds the tasks of a family, `runs` the repeats of a task."""
    rng = np.random.default_rng(seed)
    p = population
    level_sd = float(np.hypot(p.family_sd, p.task_sd))
    lift_sd = float(np.hypot(p.family_lift_sd, p.task_lift_sd))
    mu = logit_mean(p.base_rate, level_sd)
    delta = logit_mean(p.base_rate + p.lift, float(np.hypot(level_sd, lift_sd))) - mu
    family = (n_studies, n_families, 1)
    task = (n_studies, n_families, tasks[1])
    without = mu + p.family_sd * rng.standard_normal(family)
    without = without + p.task_sd * rng.standard_normal(task)
    shift = delta + p.family_lift_sd * rng.standard_normal(family)
    shift = shift + p.task_lift_sd * rng.standard_normal(task)
    present = np.arange(tasks[1]) < rng.integers(tasks[0], tasks[1] + 1, size=family)
    repeats = rng.integers(runs[0], runs[1] + 1, size=task)
    solved = rng.binomial(repeats, logistic(without + shift))
    solved_without = rng.binomial(repeats, logistic(without))
    return Studies(solved / repeats, solved_without / repeats, np.where(present, repeats, 0))


def family_differences(studies: Studies) -> Floats:
    """(studies, families): mean over the tasks of a family of with - without."""
    present = studies.repeats > 0
    difference = np.where(present, studies.with_skill - studies.without_skill, 0.0)
    means: Floats = difference.sum(axis=2) / present.sum(axis=2)
    return means


@dataclass(frozen=True)
class Row:
    """One line of a table: what is simulated, and its figure by number of families."""

    label: str
    figures: Callable[[int, int], float]
    """(studies, families) to a share of studies."""


def _shares(base_rate: float, lift: float, *, alike: bool = False) -> Callable[[int, int], Floats]:
    """Differences in correctness; alike: no effect in any family, else it varies around its mean."""
    spread = (0.0, 0.0) if alike else (0.5, 0.4)
    population = Population(base_rate, lift, family_lift_sd=spread[0], task_lift_sd=spread[1])

    def drawn(studies: int, families: int) -> Floats:
        made = simulate(population, studies, families, seed=families, tasks=(1, 1), runs=(RUNS, RUNS))
        return np.round(family_differences(made) * RUNS) / RUNS

    return drawn


def _deployed(studies: int, families: int, *, by_family: bool) -> Floats:
    """Differences of logs, of which 80 % are 0: whole families, or single runs; else a gamma with mean
    0.5."""
    rng = np.random.default_rng(families)
    runs = 1 if by_family else RUNS
    size = (studies, families, runs)
    scores: Floats = (rng.random(size) >= 0.8) * rng.gamma(2.0, 0.25, size)
    return np.asarray(scores.mean(axis=2))


def _lift(differences: Floats, *, shares: bool) -> stats.Lift:
    """One study as a report infers it; shares d are an arm at 0 and one at d, or the other way round."""
    seen = []
    for index, value in enumerate(differences.tolist()):
        names = f"family{index:02}", f"task{index:02}"
        seen.append(stats.Observation(*names, "treatment", max(value, 0.0)))
        seen.append(stats.Observation(*names, "control", max(-value, 0.0)))
    return stats.paired_lift(seen, 1.0 - _ALPHA, shares=shares)


def _helps(drawn: Callable[[int, int], Floats]) -> Callable[[int, int], float]:
    """Share of studies that `decide` calls helps."""

    def figures(studies: int, families: int) -> float:
        lifts = [_lift(row, shares=True) for row in drawn(studies, families)]
        return float(np.mean([stats.decide(lift, alpha=_ALPHA).decision == "helps" for lift in lifts]))

    return figures


def _covers(
    drawn: Callable[[int, int], Floats], truth: float, *, shares: bool
) -> Callable[[int, int], float]:
    """Share of intervals that contain the truth, of studies that have an interval."""

    def figures(studies: int, families: int) -> float:
        found = [_lift(row, shares=shares).interval for row in drawn(studies, families)]
        held = [one.low <= truth <= one.high for one in found if one is not None]
        return float(np.mean(held))

    return figures


DECISIONS = (
    Row("no effect in any family", _helps(_shares(0.2, 0.0, alike=True))),
    Row("no effect on average", _helps(_shares(0.2, 0.0))),
    *(Row(f"+{points} points", _helps(_shares(0.2, points / 100))) for points in (20, 40, 60)),
)
COVERAGE = (
    *(
        Row(f"rate {rate}, {100 * lift:+.0f} points", _covers(_shares(rate, lift), lift, shares=True))
        for rate, lift in ((0.02, 0.03), (0.5, 0.1), (0.98, -0.03))
    ),
    Row(
        "deployed, 80 % of runs at 0",
        _covers(lambda s, f: _deployed(s, f, by_family=False), 0.1, shares=False),
    ),
    Row(
        "deployed, 80 % of families at 0",
        _covers(lambda s, f: _deployed(s, f, by_family=True), 0.1, shares=False),
    ),
)


def tables(studies: int = STUDIES) -> Iterable[str]:
    """Both tables as Markdown lines."""
    parts = (
        ("share called `helps`", DECISIONS, DECIDED),
        ("coverage of the 95 % interval", COVERAGE, COVERED),
    )
    for head, rows, columns in parts:
        yield f"| {head} | {columns[0]} families | " + " | ".join(map(str, columns[1:])) + " |"
        yield "|---" * (1 + len(columns)) + "|"
        for row in rows:
            yield f"| {row.label} | " + " | ".join(f"{row.figures(studies, n):.1%}" for n in columns) + " |"
        yield ""


def main() -> None:
    """Print the tables."""
    for line in tables(int(sys.argv[1]) if len(sys.argv) > 1 else STUDIES):
        print(line, flush=True)


if __name__ == "__main__":
    main()
