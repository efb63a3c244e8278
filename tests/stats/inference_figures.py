"""The figures of docs/statistics.md on inference by family, from simulated studies: prints its tables.

Families of one task with five runs per arm, so that differences are fifths and the exact sign-flip test can
be counted for any number of families. `python -m tests.stats.inference_figures`"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from harness import stats
from harness.stats.decision import decide
from tests.stats.simulated_studies import Floats, Population, family_differences, simulate

STUDIES = 2_000
RUNS = 5
DECIDED = (6, 7, 12, 25)
COVERED = (6, 12, 25)
_ALPHA = 0.05


@dataclass(frozen=True)
class Row:
    """One line of a table: what is simulated, and its figures by number of families."""

    label: str
    figures: Callable[[int, int], tuple[float, float]]
    """(studies, families) to two shares."""


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


def _exact_p(differences: Floats) -> float:
    """Two-sided sign-flip p of differences that are multiples of 1 / RUNS, from the distribution of all
    sums."""
    steps = np.rint(np.abs(differences) * RUNS).astype(int)
    ways = np.ones(1)
    for step in steps:
        ways = np.convolve(ways, np.eye(1, 2 * step + 1, 0)[0] + np.eye(1, 2 * step + 1, 2 * step)[0])
    sums = np.arange(len(ways)) - steps.sum()
    seen = abs(int(np.rint(differences.sum() * RUNS)))
    return float(ways[np.abs(sums) >= seen].sum() / ways.sum())


def _lift(differences: Floats, *, shares: bool) -> stats.Lift:
    """One study as a report infers it; shares d are an arm at 0 and one at d, or the other way round."""
    seen = []
    for index, value in enumerate(differences.tolist()):
        names = f"family{index:02}", f"task{index:02}"
        seen.append(stats.Observation(*names, "treatment", max(value, 0.0)))
        seen.append(stats.Observation(*names, "control", max(-value, 0.0)))
    return stats.paired_lift(seen, 1.0 - _ALPHA, shares=shares)


def _helps(drawn: Callable[[int, int], Floats]) -> Callable[[int, int], tuple[float, float]]:
    """Shares of studies that `decide` calls helps, and that the exact test alone would."""

    def figures(studies: int, families: int) -> tuple[float, float]:
        rows = drawn(studies, families)
        decided = [decide(_lift(row, shares=True), alpha=_ALPHA).decision == "helps" for row in rows]
        alone = [row.sum() > 0.0 and _exact_p(row) <= _ALPHA for row in rows]
        return float(np.mean(decided)), float(np.mean(alone))

    return figures


def _covers(
    drawn: Callable[[int, int], Floats], truth: float, *, shares: bool
) -> Callable[[int, int], tuple[float, float]]:
    """Share of intervals that hold the truth, and share of studies that have one."""

    def figures(studies: int, families: int) -> tuple[float, float]:
        found = [_lift(row, shares=shares).interval for row in drawn(studies, families)]
        made = [one for one in found if one is not None]
        held = sum(one.low <= truth <= one.high for one in made)
        return held / len(made), len(made) / len(found)

    return figures


DECISIONS = (
    Row("no effect in any family", _helps(_shares(0.2, 0.0, alike=True))),
    Row("no effect on average", _helps(_shares(0.2, 0.0))),
    *(Row(f"+{points} points", _helps(_shares(0.2, points / 100))) for points in (20, 40, 60)),
)
COVERAGE = (
    *(
        Row(f"rate {rate}, {100 * lift:+.0f} points", _covers(_shares(rate, lift), lift, shares=True))
        for rate, lift in ((0.02, 0.03), (0.5, 0.1), (0.98, -0.03), (0.02, 0.96))
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
    yield "| `helps`: decision / exact test | " + " | ".join(f"{n} families" for n in DECIDED) + " |"
    yield "|---" * (1 + len(DECIDED)) + "|"
    for row in DECISIONS:
        cells = [f"{a:.1%} / {b:.1%}" for a, b in (row.figures(studies, n) for n in DECIDED)]
        yield f"| {row.label} | " + " | ".join(cells) + " |"
    yield ""
    yield "| coverage (studies with an interval) | " + " | ".join(f"{n} families" for n in COVERED) + " |"
    yield "|---" * (1 + len(COVERED)) + "|"
    for row in COVERAGE:
        cells = [f"{a:.1%} ({b:.0%})" for a, b in (row.figures(studies, n) for n in COVERED)]
        yield f"| {row.label} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print the tables."""
    for line in tables(int(sys.argv[1]) if len(sys.argv) > 1 else STUDIES):
        print(line, flush=True)


if __name__ == "__main__":
    main()
