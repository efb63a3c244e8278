"""Rates of trials: intervals and Fisher's exact test, pass@k, fast_p; and the deployed score of one trial."""

import functools
import math
from collections.abc import Sequence
from statistics import NormalDist

from harness.stats.base import Interval, require, share


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval | None:
    """Score interval of a rate, in [0, 1]; None for n == 0. Wilson (1927), JASA 22, 209-212."""
    require(0 <= successes <= n, f"need 0 <= successes <= n, got {successes} of {n}")
    z = NormalDist().inv_cdf(0.5 + share(confidence, "confidence") / 2.0)
    if n == 0:
        return None
    rate, shrink = successes / n, 1.0 + z * z / n
    centre = (rate + z * z / (2 * n)) / shrink
    half = z * math.sqrt(rate * (1.0 - rate) / n + z * z / (4.0 * n * n)) / shrink
    # Exactly 0 or 1 at the ends, in spite of rounding.
    low = 0.0 if successes == 0 else centre - half
    return Interval(low, 1.0 if successes == n else centre + half)


@functools.lru_cache(maxsize=1024)
def clopper_pearson_low(successes: int, n: int, alpha: float) -> float:
    """The lower Clopper-Pearson limit: the rate at which `successes` or more of n have the chance alpha / 2.

    0 without a success. Clopper and Pearson (1934), Biometrika 26, 404-413, by bisection.
    """
    require(0 <= successes <= n and n >= 1, f"need 0 <= successes <= n, got {successes} of {n}")
    share(alpha, "alpha")
    if successes in (0, n):
        return (alpha / 2.0) ** (1.0 / n) if successes else 0.0
    low, high = 0.0, successes / n
    for _ in range(60):
        rate = 0.5 * (low + high)
        tail = math.fsum(math.comb(n, k) * rate**k * (1.0 - rate) ** (n - k) for k in range(successes, n + 1))
        low, high = (rate, high) if tail < alpha / 2.0 else (low, rate)
    return low


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that k draws (no replacement) from n replies, c of them correct, hold a correct one.

    Chen et al. (2021), arXiv:2107.03374, eq. 1, product form.
    """
    require(0 <= c <= n and 1 <= k <= n, f"need 0 <= c <= n and 1 <= k <= n: {n=}, {c=}, {k=}")
    return 1.0 - math.prod(max(0.0, 1.0 - k / i) for i in range(n - c + 1, n + 1))


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Chance that all of k draws (no replacement) are correct: C(c, k) / C(n, k).

    Yao et al. (2024), tau-bench, arXiv:2406.12045.
    """
    require(0 <= c <= n and 1 <= k <= n, f"need 0 <= c <= n and 1 <= k <= n: {n=}, {c=}, {k=}")
    return math.comb(c, k) / math.comb(n, k)


def fisher_exact(a: int, b: int, c: int, d: int) -> float:
    """Two-sided p of the table [[a, b], [c, d]] (rows: arms; columns: event, no event).

    Sum of the tables with these margins that are no likelier than the observed one (Fisher 1922;
    Agresti, Categorical Data Analysis, 3.5). Integers throughout, so ties are exact. 1.0 where a margin is 0.
    """
    require(min(a, b, c, d) >= 0, "fisher_exact: counts must not be negative")
    row, other, column = a + b, c + d, a + c
    lowest, highest = max(0, column - other), min(row, column)
    ways = [math.comb(row, lowest) * math.comb(other, column - lowest)]
    for x in range(lowest, highest):
        ways.append(ways[-1] * (row - x) * (column - x) // ((x + 1) * (other - column + x + 1)))
    observed = ways[a - lowest]
    return sum(way for way in ways if way <= observed) / sum(ways)


def fast_p(speedups: Sequence[float | None], thresholds: Sequence[float]) -> tuple[float, ...]:
    """Share of all trials that are correct with speedup > p, for each p of thresholds.

    speedups: (n_trials,), t_reference / t_student; None = not correct. KernelBench (2025), arXiv:2502.10517.
    """
    require(bool(speedups), "fast_p: at least one trial is needed")
    correct = [speedup for speedup in speedups if speedup is not None]
    require(all(0.0 < s < math.inf for s in correct), "fast_p: speedups must be finite and > 0")
    return tuple(sum(s > p for s in correct) / len(speedups) for p in thresholds)


def deployed(speedup: float | None, correct: bool, distinguishable: bool) -> float:
    """ln max(1, speedup) where correct and distinguishably faster, else 0.

    ValueError: a correct trial without a speedup (it was not measured, which is not 0), or a speedup that is
    not finite and > 0.
    """
    require(speedup is None or 0.0 < speedup < math.inf, f"bad speedup {speedup}")
    if not correct:
        return 0.0
    if speedup is None:
        raise ValueError("a correct trial without a speedup is not measured: leave it out")
    return math.log(max(1.0, speedup)) if distinguishable else 0.0
