"""Studies drawn from a known truth.

A study has families of a few tasks, each with a few Bernoulli repeats per arm. On the logit scale

    without = mu + A_family + B_task        with = without + delta + D_family + E_task

so tasks of a family share both their level (A) and their lift (D). The true lift is the mean over the
population of families, in probability, by Gauss-Hermite quadrature. Every draw is seeded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


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
