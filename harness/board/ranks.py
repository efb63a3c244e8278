"""Ranks as ranges: who is significantly better than whom, by paired tests over families."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harness import stats
from harness.report.metrics import Metric, Score

ALPHA: Final = 0.05

Scores = list[Score]


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


def ranked(entries: Mapping[str, Scores], metric: Metric) -> Ranking:
    """Ranks of entries whose trials are of the same tasks: Holm over all pairs, at level 0.05."""
    pairs = list(itertools.combinations(entries, 2))
    lifts = [metric.lift(entries[a], entries[b]) for a, b in pairs]
    families = min((lift.n_families for lift in lifts), default=0)
    if not pairs:
        return Ranking({}, "one entry: nothing to compare it with")
    if families < stats.LEAST_FAMILIES:
        return Ranking({}, f"unranked: {families} common families, and a rank needs {stats.LEAST_FAMILIES}")
    better = dict.fromkeys(entries, 0)
    """Entries that are significantly better than it."""
    worse = dict.fromkeys(entries, 0)
    for (a, b), lift, p in zip(pairs, lifts, stats.holm([lift.p_value for lift in lifts]), strict=True):
        if p is not None and p <= ALPHA and lift.lift:
            winner, loser = (a, b) if lift.lift > 0 else (b, a)
            better[loser] += 1
            worse[winner] += 1
    ranks = {name: Rank(1 + better[name], len(entries) - worse[name]) for name in entries}
    return Ranking(ranks, _too_few(families, len(pairs)))


def families_for(pairs: int) -> int:
    """Families with which the smallest possible p, 2^(1 - n), passes Holm's first step over these pairs."""
    return math.ceil(1 + math.log2(pairs / ALPHA))


def _too_few(families: int, pairs: int) -> str | None:
    needed = families_for(pairs)
    if families >= needed:
        return None
    return (
        f"{pairs} pairs are compared: to tell them apart takes {needed} common families, here are {families}"
    )
