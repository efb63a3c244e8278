"""Point estimates, intervals, tests and the decision about a skill, on plain numbers.

Owns: every formula behind a reported figure. Does not own: which trials count, rounding, wording
of tables. Invariant: pure and deterministic; a result that cannot be computed is None, never NaN
and never a zero-width interval; bad input is a ValueError.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from harness.student_t import t_ppf, t_upper

# Differences below this share of the largest input are rounding dust, so they count as ties.
_DUST: Final = 1e-12
_FLIPS: Final = 100_000
_FLIP_SEED: Final = 20_240_229  # fixed, so that a report can be reproduced to the last digit


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided confidence interval in the units of the estimate; low < high."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean of n values; p_value tests mean = 0; both are None for n < 2 or zero spread."""

    mean: float
    interval: Interval | None
    p_value: float | None
    n: int


@dataclass(frozen=True, slots=True)
class RatioEstimate:
    """A geometric mean ratio (1 = no change) of n log ratios and its multiplicative interval."""

    ratio: float
    interval: Interval | None
    n: int


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


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _share(value: float, name: str) -> float:
    _require(0.0 < value < 1.0, f"{name} must lie strictly between 0 and 1, got {value}")
    return value


def _finite(values: Iterable[float], name: str) -> list[float]:
    checked = [float(value) for value in values]
    _require(bool(checked), f"{name}: at least one value is needed")
    _require(all(map(math.isfinite, checked)), f"{name}: every value must be finite")
    return checked


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)  # fsum: the result does not depend on the order


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval | None:
    """Score interval of a rate, in [0, 1]; None for n == 0. Wilson (1927), JASA 22, 209-212.

    ValueError: not 0 <= successes <= n, or confidence outside (0, 1).
    """
    _require(0 <= successes <= n, f"need 0 <= successes <= n, got {successes} of {n}")
    z = NormalDist().inv_cdf(0.5 + _share(confidence, "confidence") / 2.0)
    if n == 0:
        return None
    rate, shrink = successes / n, 1.0 + z * z / n
    centre = (rate + z * z / (2 * n)) / shrink
    half = z * math.sqrt(rate * (1.0 - rate) / n + z * z / (4.0 * n * n)) / shrink
    # The bound at 0 or n successes is exactly 0 or 1; rounding must not say otherwise.
    low = 0.0 if successes == 0 else centre - half
    return Interval(low, 1.0 if successes == n else centre + half)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that k draws (no replacement) from n replies, c of them correct, hold a correct one.

    Chen et al. (2021), arXiv:2107.03374, eq. 1, product form. ValueError: c not in 0..n, k not in
    1..n.
    """
    _require(0 <= c <= n and 1 <= k <= n, f"need 0 <= c <= n and 1 <= k <= n: {n=}, {c=}, {k=}")
    return 1.0 - math.prod(max(0.0, 1.0 - k / i) for i in range(n - c + 1, n + 1))


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Chance that all of k draws (no replacement) are correct: C(c, k) / C(n, k).

    Yao et al. (2024), tau-bench, arXiv:2406.12045. ValueError: c not in 0..n, k not in 1..n.
    """
    _require(0 <= c <= n and 1 <= k <= n, f"need 0 <= c <= n and 1 <= k <= n: {n=}, {c=}, {k=}")
    return math.comb(c, k) / math.comb(n, k)


def _mean_interval(values: Sequence[float], confidence: float, scale: float) -> Estimate:
    """`mean_interval`, where a spread of up to _DUST * scale is no spread."""
    n, mean = len(values), _mean(values)
    quantile = 0.5 + _share(confidence, "confidence") / 2.0
    if n < 2 or max(values) - min(values) <= _DUST * scale:
        return Estimate(mean, None, None, n)
    squares = math.fsum(((value - mean) / scale) ** 2 for value in values)  # no over- or underflow
    error = scale * math.sqrt(squares / (n - 1) / n)
    half = t_ppf(quantile, n - 1) * error
    p_value = min(1.0, 2.0 * t_upper(abs(mean) / error, n - 1))
    return Estimate(mean, Interval(mean - half, mean + half), p_value, n)


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean of values: (n,), any unit, with Student's t interval and test of 0, n - 1 df.

    Student (1908), Biometrika 6, 1-25. ValueError: empty or non-finite values, bad confidence.
    """
    checked = _finite(values, "mean_interval")
    return _mean_interval(checked, confidence, max(map(abs, checked)))


def geometric_mean(values: Sequence[float]) -> float:
    """exp(mean(ln values)) of values: (n,), each > 0. ValueError: empty, not finite, not > 0."""
    checked = _finite(values, "geometric_mean")
    _require(min(checked) > 0.0, "geometric_mean: every value must be above 0")
    return math.exp(_mean([math.log(value) for value in checked]))


def log_ratio_interval(log_ratios: Sequence[float], confidence: float = 0.95) -> RatioEstimate:
    """Ratio with interval from log_ratios: (n,), natural logs, one per independent unit.

    The t interval of the logs, exponentiated (protocols.md, Timing: compare, one log ratio per
    process pair). ValueError: empty or non-finite values, bad confidence.
    """
    logs = mean_interval(log_ratios, confidence)
    low_high = logs.interval
    ratio = None if low_high is None else Interval(math.exp(low_high.low), math.exp(low_high.high))
    return RatioEstimate(math.exp(logs.mean), ratio, logs.n)


def _sign_flip(differences: Sequence[float], scale: float, exact_limit: int) -> float:
    """Two-sided p of sum = 0 when each sign is a fair coin; independent of order and labels.

    Exact up to exact_limit values, else _FLIPS random draws with the observed one counted in
    (Phipson and Smyth 2010), so that p is never 0.
    """
    sizes = np.array(sorted(map(abs, differences)), dtype=np.float64)
    # A tie with the observed sum counts as extreme, also where rounding splits the tie.
    bound = abs(math.fsum(differences)) - _DUST * scale * len(sizes)
    if len(sizes) <= exact_limit:
        sums: npt.NDArray[np.float64] = sizes[:1]  # the other half is the mirror image
        for size in sizes[1:]:
            sums = np.concatenate((sums + size, sums - size))
        return int(np.count_nonzero(np.abs(sums) >= bound)) / len(sums)
    generator, extreme, chunk = np.random.Generator(np.random.PCG64(_FLIP_SEED)), 1, 10_000
    for _ in range(_FLIPS // chunk):
        signs = generator.integers(0, 2, size=(chunk, len(sizes)), dtype=np.int8) * 2 - 1
        extreme += int(np.count_nonzero(np.abs(signs @ sizes) >= bound))
    return extreme / (_FLIPS + 1)


def _task_means(
    observations: Sequence[Observation],
) -> tuple[dict[str, list[tuple[float, float]]], int]:
    """(with, without) means of each task that has both arms, by family; and the tasks dropped."""
    repeats: dict[tuple[str, str], dict[str, list[float]]] = {}
    family_of: dict[str, str] = {}
    for seen in observations:
        _require(math.isfinite(seen.value), f"{seen.task}: value must be finite")
        _require(seen.arm in ("treatment", "control"), f"{seen.task}: unknown arm {seen.arm!r}")
        known = family_of.setdefault(seen.task, seen.family)
        _require(known == seen.family, f"{seen.task}: in two families, {known} and {seen.family}")
        arms = repeats.setdefault((seen.family, seen.task), {"treatment": [], "control": []})
        arms[seen.arm].append(seen.value)
    by_family: dict[str, list[tuple[float, float]]] = {}
    dropped = 0
    for (family, _), arms in sorted(repeats.items()):
        if arms["treatment"] and arms["control"]:
            pair = (_mean(arms["treatment"]), _mean(arms["control"]))
            by_family.setdefault(family, []).append(pair)
        else:
            dropped += 1
    return by_family, dropped


def paired_lift(observations: Sequence[Observation], confidence: float = 0.95, exact_limit: int = 20) -> Lift:
    """Lift paired by task and inferred by family (DESIGN.md, Statistics); n_families - 1 df.

    Repeats are averaged in a task and arm, tasks in a family; every family has equal weight. The
    p value is the sign-flip test by family (Fisher 1935), exact up to exact_limit families; it
    assumes differences symmetric about 0 under the null. Interval None: n_families < 2 or zero
    spread; p None: n_families < 2. ValueError: a value is not finite, an unknown arm, a task in
    two families, confidence outside (0, 1), exact_limit outside 1..24 (2^23 sums are 64 MiB).
    """
    _share(confidence, "confidence")
    _require(1 <= exact_limit <= 24, f"exact_limit must lie in 1..24, got {exact_limit}")
    by_family, dropped = _task_means(observations)
    n, n_tasks = len(by_family), sum(map(len, by_family.values()))
    if n == 0:
        return Lift(None, None, None, None, None, 0, 0, dropped, (), confidence)
    with_means = [_mean([pair[0] for pair in pairs]) for pairs in by_family.values()]
    without_means = [_mean([pair[1] for pair in pairs]) for pairs in by_family.values()]
    differences = [a - b for a, b in zip(with_means, without_means, strict=True)]
    scale = max(map(abs, with_means + without_means))
    estimate = _mean_interval(differences, confidence, scale)
    return Lift(
        mean_with=_mean(with_means),
        mean_without=_mean(without_means),
        lift=estimate.mean,
        interval=estimate.interval,
        p_value=_sign_flip(differences, scale, exact_limit) if n > 1 else None,
        n_families=n,
        n_tasks=n_tasks,
        n_dropped_tasks=dropped,
        per_family=tuple(zip(by_family, differences, strict=True)),
        confidence=confidence,
    )


def holm(p_values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Step-down adjusted p values, in the given order. Holm (1979), Scand. J. Stat. 6, 65-70.

    A None (not computable) stays None but still counts as a planned test, as if its p were 1.
    ValueError: a p value outside [0, 1].
    """
    known = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    _require(all(0.0 <= p <= 1.0 for p, _ in known), "holm: p values must lie in [0, 1]")
    adjusted: list[float | None] = [None] * len(p_values)
    running = 0.0
    for rank, (p, index) in enumerate(known):
        running = max(running, min(1.0, (len(p_values) - rank) * p))
        adjusted[index] = running
    return tuple(adjusted)


def minimum_detectable_ratio(sd: float, n_units: int, power: float = 0.8, alpha: float = 0.05) -> float:
    """Smallest true ratio that n_units independent units detect with the given power, two-sided.

    exp((t[1 - alpha/2] + t[power]) * sd / sqrt(n_units)), n_units - 1 df, sd of one unit's (paired)
    natural log ratio: the t approximation to the one-sample test; Armitage and Berry, ch. 6.
    ValueError: sd not finite and > 0, n_units < 2, power or alpha outside (0, 1).
    """
    _require(0.0 < sd < math.inf, f"sd must be finite and above 0, got {sd}")
    _require(n_units >= 2, f"n_units must be at least 2, got {n_units}")
    df = n_units - 1
    quantiles = t_ppf(1.0 - _share(alpha, "alpha") / 2.0, df) + t_ppf(_share(power, "power"), df)
    return math.exp(quantiles * sd / math.sqrt(n_units))


def fisher_exact(a: int, b: int, c: int, d: int) -> float:
    """Two-sided p of the table [[a, b], [c, d]] (rows: arms; columns: event, no event).

    Sum of the tables with these margins that are no likelier than the observed one (Fisher 1922;
    Agresti, Categorical Data Analysis, 3.5). Integers throughout, so ties are exact. 1.0 where a
    margin is 0. ValueError: a negative count.
    """
    _require(min(a, b, c, d) >= 0, "fisher_exact: counts must not be negative")
    row, other, column = a + b, c + d, a + c
    lowest, highest = max(0, column - other), min(row, column)
    ways = [math.comb(row, lowest) * math.comb(other, column - lowest)]
    for x in range(lowest, highest):
        ways.append(ways[-1] * (row - x) * (column - x) // ((x + 1) * (other - column + x + 1)))
    observed = ways[a - lowest]
    return sum(way for way in ways if way <= observed) / sum(ways)


def fast_p(speedups: Sequence[float | None], thresholds: Sequence[float]) -> tuple[float, ...]:
    """Share of all trials that are correct with speedup > p, for each p of thresholds.

    speedups: (n_trials,), t_reference / t_student; None = not correct. KernelBench (2025),
    arXiv:2502.10517. ValueError: no trials, a speedup not finite and > 0, a threshold < 0.
    """
    _require(bool(speedups), "fast_p: at least one trial is needed")
    correct = [speedup for speedup in speedups if speedup is not None]
    _require(all(0.0 < s < math.inf for s in correct), "fast_p: speedups must be finite and > 0")
    _require(all(0.0 <= p < math.inf for p in thresholds), "fast_p: thresholds must be >= 0")
    return tuple(sum(s > p for s in correct) / len(speedups) for p in thresholds)


def median_iqr(values: Sequence[float]) -> tuple[float, float, float]:
    """(median, first quartile, third quartile) of values: (n,), any unit; n >= 1.

    Linear interpolation, Hyndman and Fan (1996) type 7. ValueError: empty, not finite.
    """
    first, median, third = np.quantile(_finite(values, "median_iqr"), (0.25, 0.5, 0.75))
    return float(median), float(first), float(third)


def deployed(speedup: float | None, correct: bool, distinguishable: bool) -> float:
    """ln max(1, speedup) where correct and distinguishably faster, else 0 (DESIGN.md, Statistics).

    A correct trial without a speedup was not measured: it is absent, never 0, hence a ValueError;
    so is a speedup that is not finite and > 0.
    """
    _require(speedup is None or 0.0 < speedup < math.inf, f"bad speedup {speedup}")
    if not correct:
        return 0.0
    if speedup is None:
        raise ValueError("a correct trial without a speedup is not measured: leave it out")
    return math.log(max(1.0, speedup)) if distinguishable else 0.0
