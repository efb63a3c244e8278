"""Ranks as ranges: who is significantly better than whom, by paired tests over families."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness import stats
from harness.report.metrics import Value

ALPHA: Final = 0.05

TaskMeans = Mapping[tuple[str, str], float]
"""Mean of an entry's trials by family and task, on the scale of inference."""


@dataclass(frozen=True)
class Rank:
    """An entry's place: from 1 + entries significantly better to all less those significantly worse."""

    first: int
    last: int

    @property
    def text(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True)
class Ranking:
    ranks: Mapping[str, Rank]
    """By entry; empty where nothing can be ranked."""
    why: str | None
    """Why there are no ranks, or what would be needed for more of them."""


def task_means(values: Iterable[Value]) -> TaskMeans:
    """Of one entry."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for family, task, value in values:
        found[family, task].append(value)
    return {key: math.fsum(seen) / len(seen) for key, seen in found.items()}


def ranked(
    entries: Mapping[str, TaskMeans],
    tested: Callable[[stats.Floats, float, float], stats.Floats] = stats.many_sign_flips,
) -> Ranking:
    """Ranks over the tasks that all entries have: Holm over all pairs, at level 0.05."""
    if len(entries) < 2:
        return Ranking({}, "one entry: nothing to compare it with" if entries else None)
    common = set.intersection(*(set(means) for means in entries.values()))
    tasks: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for key in sorted(common):
        tasks[key[0]].append(key)
    if len(tasks) < stats.LEAST_FAMILIES:
        return Ranking({}, f"unranked: {len(tasks)} common families, and a rank needs {stats.LEAST_FAMILIES}")
    means = np.array(
        [[math.fsum(own[k] for k in keys) / len(keys) for keys in tasks.values()] for own in entries.values()]
    )
    one, other = np.triu_indices(len(entries), 1)
    differences = means[one] - means[other]
    p_values = tested(differences, ALPHA, float(np.abs(means).max()))
    adjusted = np.array(stats.holm(p_values.tolist()), dtype=np.float64)
    lifts = np.where(adjusted <= ALPHA, differences.mean(axis=1), 0.0)
    better, worse = np.zeros(len(entries), int), np.zeros(len(entries), int)
    for winner, loser, ahead in ((one, other, lifts > 0), (other, one, lifts < 0)):
        np.add.at(better, loser[ahead], 1)
        np.add.at(worse, winner[ahead], 1)
    places = zip(entries, (1 + better).tolist(), (len(entries) - worse).tolist(), strict=True)
    return Ranking({name: Rank(*ends) for name, *ends in places}, _too_few(len(tasks), len(one)))


def families_for(pairs: int) -> int:
    """Families with which the smallest possible p, 2^(1 - n), passes Holm's first step over these pairs."""
    return math.ceil(1 + math.log2(pairs / ALPHA))


def _too_few(families: int, pairs: int) -> str | None:
    least, needed = stats.least_p(families), families_for(pairs)
    if least <= ALPHA / pairs:
        return None
    if families < needed:
        takes = f"to tell them apart takes {needed} common families"
        return f"{pairs} pairs are compared: {takes}, here are {families}"
    return (
        f"{pairs} pairs are compared: p over {families} families is drawn (exact up to "
        f"{stats.MANY_FAMILIES}) and at least {least:.2g}, too large to tell any of them apart"
    )
