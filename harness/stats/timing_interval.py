"""Intervals of timings: Student's t for means and ratios, order statistics for medians.

Zero spread or a single value gives no interval, never one of zero width.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import mpmath
import numpy as np

from harness.stats.base import DUST, Interval, finite, mean_of, share


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean or a geometric mean ratio (1 = no change) of n values; no interval for n < 2 or no spread."""

    value: float
    interval: Interval | None
    n: int


def _t_upper(t: float, df: float) -> float:
    """P(T > t) for t >= 0, by whichever tail of the incomplete beta function keeps its digits (DLMF 8.17)."""
    square = t * t
    if square < df:
        return 0.5 - 0.5 * float(mpmath.betainc(0.5, df / 2, 0, square / (df + square), regularized=True))
    return 0.5 * float(mpmath.betainc(df / 2, 0.5, 0, df / (df + square), regularized=True))


def t_cdf(t: float, df: float) -> float:
    """P(T <= t) of Student's t with df >= 1 degrees of freedom; t is finite."""
    upper = _t_upper(abs(t), df)
    return 1.0 - upper if t > 0 else upper


@functools.lru_cache(maxsize=256)
def t_ppf(p: float, df: float) -> float:
    """The t with P(T <= t) = p for 0 < p < 1 and df >= 1, by bisection."""
    tail = min(p, 1.0 - p)
    if tail == 0.5:
        return 0.0
    low, high = 0.0, 1.0
    while _t_upper(high, df) > tail:
        low, high = high, 2.0 * high
    while low < (middle := 0.5 * (low + high)) < high:  # ends at two neighboring floats
        low, high = (middle, high) if _t_upper(middle, df) > tail else (low, middle)
    return high if p > 0.5 else -high


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean of values: (n,), any unit, with Student's t interval, n - 1 df.

    Student (1908), Biometrika 6, 1-25. ValueError: empty or non-finite values, bad confidence.
    """
    checked = finite(values, "mean_interval")
    n, mean, scale = len(checked), mean_of(checked), max(map(abs, checked))
    quantile = 0.5 + share(confidence, "confidence") / 2.0
    if n < 2 or max(checked) - min(checked) <= DUST * scale:
        return Estimate(mean, None, n)
    squares = math.fsum(((value - mean) / scale) ** 2 for value in checked)  # no over- or underflow
    half = t_ppf(quantile, n - 1) * scale * math.sqrt(squares / (n - 1) / n)
    return Estimate(mean, Interval(mean - half, mean + half), n)


def log_ratio_interval(log_ratios: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Ratio with interval from log_ratios: (n,), natural logs, one per independent unit.

    The t interval of the logs, exponentiated. ValueError: empty or non-finite values, bad confidence.
    """
    logs = mean_interval(log_ratios, confidence)
    ends = logs.interval
    return Estimate(math.exp(logs.value), ends and Interval(math.exp(ends.low), math.exp(ends.high)), logs.n)


def median_iqr(values: Sequence[float]) -> tuple[float, float, float]:
    """(median, first quartile, third quartile) of values: (n,), any unit; n >= 1.

    Linear interpolation, Hyndman and Fan (1996) type 7. ValueError: empty, not finite.
    """
    first, median, third = np.quantile(finite(values, "median_iqr"), (0.25, 0.5, 0.75))
    return float(median), float(first), float(third)


def median_half_width(values: Sequence[float]) -> float | None:
    """Half-width of the 95 % interval of the median of values: (n,), any unit; None for n < 6.

    By order statistics (the normal approximation of the binomial ranks, Conover 1999, section 3.2), so it
    assumes no distribution; below 6 values no pair of them covers 95 %.
    """
    checked = sorted(finite(values, "median_half_width")) if values else []
    count = len(checked)
    if count < 6:
        return None
    reach = 1.96 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - reach) - 1)
    high = min(count - 1, math.ceil(count / 2 + reach))
    return (checked[high] - checked[low]) / 2
