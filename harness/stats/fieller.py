"""The ratio of two paired means, with an interval that says where it has no end.

Owns: Fieller's interval. Does not own: what is divided by what. Invariant: bounds exist exactly where the
denominator's own t interval excludes 0; never of zero width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.stats.means import DUST, Interval, finite, interval_of, mean_of, require
from harness.student_t import t_ppf


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """mean(numerators) / mean(denominators) of n paired units."""

    ratio: float
    interval: Interval | None
    unbounded: bool
    """The denominator's interval includes 0: no finite interval holds the ratio at this confidence."""


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = 0.95
) -> PairedRatio | None:
    """The ratio of means of (n,) paired values, any units, with n - 1 degrees of freedom.

    Fieller (1954), JRSS B 16, 175-185: all r for which the mean of numerator - r * denominator does not
    differ from 0 by Student's t; pairing, hence correlation, is kept. None: n < 2, a denominator's mean of
    0, or no spread in the denominators (then there is no interval of them to rest on). ValueError: values
    that are not finite, lengths that differ, confidence outside (0, 1).
    """
    x, y = finite(numerators, "numerators"), finite(denominators, "denominators")
    require(len(x) == len(y), f"paired_ratio: {len(x)} numerators and {len(y)} denominators")
    scale = max(map(abs, y))
    below = interval_of(y, confidence, scale).interval if scale > 0.0 else None
    mean_x, mean_y, n = mean_of(x), mean_of(y), len(x)
    if below is None or abs(mean_y) <= DUST * scale:
        return None
    ratio = mean_x / mean_y
    if below.low <= 0.0 <= below.high:
        return PairedRatio(ratio, None, unbounded=True)
    factor = t_ppf(0.5 + confidence / 2.0, n - 1) ** 2 / ((n - 1) * n)
    pairs = list(zip(x, y, strict=True))
    a = mean_y**2 - factor * math.fsum((v - mean_y) ** 2 for v in y)
    b = mean_x * mean_y - factor * math.fsum((u - mean_x) * (v - mean_y) for u, v in pairs)
    c = mean_x**2 - factor * math.fsum((u - mean_x) ** 2 for u in x)
    half = math.sqrt(max(0.0, b * b - a * c)) / a
    if half <= DUST * abs(b / a):
        return PairedRatio(ratio, None, unbounded=False)
    return PairedRatio(ratio, Interval(b / a - half, b / a + half), unbounded=False)
