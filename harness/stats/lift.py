"""The paired lift: treatment minus control by task, inferred by family, and the deployed score.

Owns: averaging, pairing, the sign-flip test. Does not own: which trials count, or the decision
(decision.py). Invariant: the result does not depend on the order of the observations.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from harness.stats.means import DUST, Interval, interval_of, mean_of, require, share

_FLIPS: Final = 100_000
_FLIP_SEED: Final = 20_240_229  # fixed, so that a report can be reproduced to the last digit


@dataclass(frozen=True, slots=True)
class Observation:
    """One scored repeat of a task in one arm (`control` is the arm that is subtracted)."""

    family: str
    task: str
    arm: Literal["treatment", "control"]
    value: float


@dataclass(frozen=True, slots=True)
class Lift:
    """Treatment minus control, in the units of the values; means are None without any pair.

    per_family: (family, difference) by family name. n_dropped_tasks: tasks lacking one arm.
    """

    mean_with: float | None
    mean_without: float | None
    lift: float | None
    interval: Interval | None
    p_value: float | None
    n_families: int
    n_tasks: int
    n_dropped_tasks: int
    per_family: tuple[tuple[str, float], ...]
    confidence: float = 0.95


@functools.cache
def _signs(n: int) -> npt.NDArray[np.int8]:
    """(_FLIPS, n) fair signs, the same ones in every call."""
    generator, chunk = np.random.Generator(np.random.PCG64(_FLIP_SEED)), 10_000
    drawn = [generator.integers(0, 2, size=(chunk, n), dtype=np.int8) for _ in range(_FLIPS // chunk)]
    return np.concatenate(drawn) * np.int8(2) - np.int8(1)


def _sign_flip(differences: Sequence[float], scale: float, exact_limit: int) -> float:
    """Two-sided p of sum = 0 when each sign is a fair coin; independent of order and labels.

    Exact up to exact_limit values that are not 0, else _FLIPS random draws with the observed one
    counted in (Phipson and Smyth 2010), so that p is never 0.
    """
    # A value of 0 adds nothing whatever its sign, so leaving it out changes no p value.
    sizes = np.array(sorted(abs(d) for d in differences if d != 0.0), dtype=np.float64)
    if not len(sizes):
        return 1.0
    # A tie with the observed sum counts as extreme, also where rounding splits the tie.
    bound = abs(math.fsum(differences)) - DUST * scale * len(differences)
    if len(sizes) <= exact_limit:
        sums: npt.NDArray[np.float64] = sizes[:1]  # the other half is the mirror image
        for size in sizes[1:]:
            sums = np.concatenate((sums + size, sums - size))
        return int(np.count_nonzero(np.abs(sums) >= bound)) / len(sums)
    extreme = int(np.count_nonzero(np.abs(_signs(len(sizes)) @ sizes) >= bound))
    return (1 + extreme) / (_FLIPS + 1)


def _task_means(
    observations: Sequence[Observation],
) -> tuple[dict[str, list[tuple[float, float]]], int]:
    """(with, without) means of each task that has both arms, by family; and the tasks dropped."""
    repeats: dict[tuple[str, str], dict[str, list[float]]] = {}
    family_of: dict[str, str] = {}
    for seen in observations:
        require(math.isfinite(seen.value), f"{seen.task}: value must be finite")
        require(seen.arm in ("treatment", "control"), f"{seen.task}: unknown arm {seen.arm!r}")
        known = family_of.setdefault(seen.task, seen.family)
        require(known == seen.family, f"{seen.task}: in two families, {known} and {seen.family}")
        arms = repeats.setdefault((seen.family, seen.task), {"treatment": [], "control": []})
        arms[seen.arm].append(seen.value)
    by_family: dict[str, list[tuple[float, float]]] = {}
    dropped = 0
    for (family, _), arms in sorted(repeats.items()):
        if arms["treatment"] and arms["control"]:
            pair = (mean_of(arms["treatment"]), mean_of(arms["control"]))
            by_family.setdefault(family, []).append(pair)
        else:
            dropped += 1
    return by_family, dropped


def paired_lift(
    observations: Sequence[Observation],
    confidence: float = 0.95,
    exact_limit: int = 20,
    *,
    tested: bool = True,
) -> Lift:
    """Lift paired by task and inferred by family (DESIGN.md, Statistics); n_families - 1 df.

    Repeats are averaged in a task and arm, tasks in a family; every family has equal weight. The
    p value is the sign-flip test by family (Fisher 1935), exact up to exact_limit families; it
    assumes differences symmetric about 0 under the null. Interval None: n_families < 2 or zero
    spread; p None: n_families < 2 or not tested. ValueError: a value is not finite, an unknown arm, a task in
    two families, confidence outside (0, 1), exact_limit outside 1..24 (2^23 sums are 64 MiB).
    """
    share(confidence, "confidence")
    require(1 <= exact_limit <= 24, f"exact_limit must lie in 1..24, got {exact_limit}")
    by_family, dropped = _task_means(observations)
    n, n_tasks = len(by_family), sum(map(len, by_family.values()))
    if n == 0:
        return Lift(None, None, None, None, None, 0, 0, dropped, (), confidence)
    with_means = [mean_of([pair[0] for pair in pairs]) for pairs in by_family.values()]
    without_means = [mean_of([pair[1] for pair in pairs]) for pairs in by_family.values()]
    differences = [a - b for a, b in zip(with_means, without_means, strict=True)]
    scale = max(map(abs, with_means + without_means))
    estimate = interval_of(differences, confidence, scale)
    return Lift(
        mean_with=mean_of(with_means),
        mean_without=mean_of(without_means),
        lift=estimate.mean,
        interval=estimate.interval,
        p_value=_sign_flip(differences, scale, exact_limit) if tested and n > 1 else None,
        n_families=n,
        n_tasks=n_tasks,
        n_dropped_tasks=dropped,
        per_family=tuple(zip(by_family, differences, strict=True)),
        confidence=confidence,
    )


def deployed(speedup: float | None, correct: bool, distinguishable: bool) -> float:
    """ln max(1, speedup) where correct and distinguishably faster, else 0 (DESIGN.md, Statistics).

    A correct trial without a speedup was not measured: it is absent, never 0, hence a ValueError;
    so is a speedup that is not finite and > 0.
    """
    require(speedup is None or 0.0 < speedup < math.inf, f"bad speedup {speedup}")
    if not correct:
        return 0.0
    if speedup is None:
        raise ValueError("a correct trial without a speedup is not measured: leave it out")
    return math.log(max(1.0, speedup)) if distinguishable else 0.0
