"""The interval and the p value of the lift: the exact sign-flip test by family, and its inversion.

Flipping the signs of the values in a subset F of x - delta turns their sum S into S - 2 sum_F(x - delta),
which is at least S exactly where mean_F(x) <= delta. So the one-sided p of "the mean is delta" is (1 + #{F:
mean_F <= delta}) / 2^n over the 2^n - 1 non-empty subsets, and the two-sided p is twice the smaller side.
The deltas with p above alpha reach from the K-th smallest to the K-th largest subset mean, K = floor(alpha
2^n / 2), both included: 0 lies outside exactly where p <= alpha. Test: Fisher (1935), The Design of
Experiments, ch. III. Inversion: Hartigan (1969), JASA 64, 1303-1317. Drawn subsets: Phipson and Smyth
(2010), Stat. Appl. Genet. Mol. Biol. 9, 39.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from harness.stats.base import DUST, Interval, finite, mean_of, require, share
from harness.stats.rates import clopper_pearson_low

Floats = npt.NDArray[np.float64]
EXACT_FAMILIES: Final = 20
"""Up to here every subset is visited; above, test and interval share one fixed set of drawn subsets."""
LEAST_FAMILIES: Final = 6
"""Below, there is no interval at any level."""
_DRAWS: Final = 99_990
"""One less than a prime, so that alpha * 99,991 / 2 is no integer for any decimal alpha."""
_SEED: Final = 20_240_229  # fixed, so that a report can be reproduced to the last digit
_CHUNK: Final = 10_000
MANY_FAMILIES: Final = 26
"""Up to here `many_sign_flips` is exact."""
_SCREEN: Final = 2_047
_SURE: Final = 40.0


@dataclass(frozen=True, slots=True)
class SignFlip:
    """The test of mean = 0 and its inversion; `interval` excludes 0 exactly where p_value <= alpha."""

    p_value: float
    interval: Interval | None
    n_different: int
    """Values that are not 0: p_value is at least 2^(1 - n_different), above EXACT_FAMILIES within the error
    of the draw."""


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """mean(numerators) / mean(denominators) of n paired units."""

    ratio: float
    interval: Interval | None
    unbounded: bool
    """The denominator's interval includes 0, so the ratio has no finite interval at this confidence."""


@functools.lru_cache(maxsize=4)
def _drawn(n: int) -> Floats:
    """(_DRAWS, n): membership (0 or 1) of non-empty drawn subsets, the same in every call."""
    rng = np.random.Generator(np.random.PCG64(_SEED))
    drawn = rng.integers(0, 2, size=(_DRAWS + 100, n), dtype=np.uint8)
    return drawn[drawn.any(axis=1)][:_DRAWS].astype(np.float64)


def _subset_sums(values: Sequence[float]) -> Floats:
    """(2^n - 1,) sums over all non-empty subsets, or (_DRAWS,) over drawn ones."""
    n = len(values)
    if n > EXACT_FAMILIES:
        members, column = _drawn(n), np.asarray(values, dtype=np.float64)
        return np.concatenate([members[at : at + _CHUNK] @ column for at in range(0, _DRAWS, _CHUNK)])
    sums = np.zeros(2**n)
    for index, value in enumerate(values):
        half = 2**index
        np.add(sums[:half], value, out=sums[half : 2 * half])
    return sums[1:]


@functools.lru_cache(maxsize=4)
def _subset_sizes(n: int) -> Floats:
    """Sizes of the subsets of `_subset_sums`, in the same order."""
    return _subset_sums([1.0] * n)


def _alpha(confidence: float) -> float:
    require(share(confidence, "confidence") > 0.5, f"confidence must be above 0.5, got {confidence}")
    return 1.0 - confidence


def _rank(alpha: float, n_subsets: int) -> int:
    """K: how many subset means lie at or beyond each limit."""
    return math.floor(alpha * (n_subsets + 1) / 2.0)


def _widened(limit: float, values: Sequence[float], alpha: float, dust: float, bound: float | None) -> float:
    """A lower limit, moved down where many families tie at the largest value.

    Their share of all families may be as low as its Clopper-Pearson limit; the others then have the mean of
    those seen or, where all tie, 0 (a largest value below 0: -bound). So values that are all 0 or 1 get at
    least the Clopper-Pearson interval, equal values one of some width, and a limit above 0 stays above 0.
    """
    most = max(values)
    rest = [value for value in values if most - value > dust]
    least = clopper_pearson_low(len(values) - len(rest), len(values), alpha)
    if rest:
        elsewhere = mean_of(rest)
    else:
        elsewhere = 0.0 if most > 0.0 else most if bound is None else -bound
    if limit > 0.0:
        elsewhere = max(0.0, elsewhere)
    return min(limit, least * most + (1.0 - least) * elsewhere)


def _inverted(
    values: Sequence[float], sums: Floats, alpha: float, dust: float, bound: float | None
) -> Interval | None:
    """The interval of the mean; sums: of the subsets of values. None: too few values for this alpha."""
    rank = _rank(alpha, len(sums))
    if len(values) < LEAST_FAMILIES or rank < 1:
        return None
    means = np.partition(sums / _subset_sizes(len(values)), (rank - 1, len(sums) - rank))
    low = _widened(float(means[rank - 1]), values, alpha, dust, bound)
    high = -_widened(-float(means[-rank]), [-value for value in values], alpha, dust, bound)
    return Interval(low + 0.0, high + 0.0)  # no -0.0


def sign_flip(
    differences: Sequence[float], confidence: float = 0.95, *, scale: float = 0.0, bound: float | None = None
) -> SignFlip:
    """Test of mean = 0 and interval of the mean of differences: (n,), one per family, any unit.

    Assumes only that differences are symmetric about their mean. scale: the largest number that they were
    computed from, which sets what counts as rounding. bound: the largest possible difference (1 for shares),
    None without one. The interval is None below LEAST_FAMILIES, for K = 0, and where every difference is 0.
    The result does not depend on the order; negated differences give the mirrored result. ValueError: a value
    that is not finite or beyond bound, confidence outside (0.5, 1).
    """
    alpha = _alpha(confidence)
    checked = finite(differences, "sign_flip")
    dust = DUST * max(scale, *map(abs, checked))
    require(bound is None or max(map(abs, checked)) <= bound + dust, f"sign_flip: beyond the bound {bound}")
    near = [0.0 if abs(value) <= dust else value for value in checked]
    if not any(near):
        return SignFlip(1.0, None, 0)
    side = -1.0 if math.fsum(near) < 0.0 else 1.0
    ordered = sorted((side * value for value in near), key=lambda value: (abs(value), value))
    sums = _subset_sums(ordered)
    sums[np.abs(sums) <= dust * len(near)] = 0.0  # ties count as extreme in spite of rounding
    beyond = min(int(np.count_nonzero(sums <= 0.0)), int(np.count_nonzero(sums >= 0.0)))
    interval = _inverted(ordered, sums, alpha, dust, bound)
    if interval is not None and side < 0.0:
        interval = Interval(-interval.high + 0.0, -interval.low + 0.0)
    p_value = min(1.0, 2.0 * (1 + beyond) / (len(sums) + 1))
    return SignFlip(p_value, interval, sum(value != 0.0 for value in near))


def many_sign_flips(differences: Floats, alpha: float, scale: float = 0.0) -> Floats:
    """p values (pairs,) of mean = 0 for differences (pairs, families), to be adjusted by Holm at alpha.

    As `sign_flip`, exact up to MANY_FAMILIES. One matrix of drawn signs serves all pairs and shows which of
    them Holm may reject; the others keep 1 (wrongly with a chance below 1e-17 each, by Chernoff's bound).
    Above MANY_FAMILIES the draws decide, and no p is below `least_p`.
    """
    pairs, n = differences.shape
    if least_p(n) > alpha / pairs:
        return np.ones(pairs)
    limits = DUST * np.maximum(scale, np.abs(differences).max(axis=1))
    near = np.where(np.abs(differences) <= limits[:, None], 0.0, differences)
    near *= np.where(near.sum(axis=1) < 0.0, -1.0, 1.0)[:, None]
    limits *= n
    members = _drawn(n)[: _SCREEN if n <= MANY_FAMILIES else _DRAWS]
    parts = [slice(at, at + _CHUNK // 20) for at in range(0, pairs, _CHUNK // 20)]
    below = (near[part] @ members.T <= limits[part, None] for part in parts)
    extreme = np.concatenate([np.count_nonzero(one, axis=1) for one in below])
    if n > MANY_FAMILIES:
        return np.minimum(1.0, 2.0 * (1 + extreme) / (len(members) + 1))
    found = np.ones(pairs)
    for pair in np.flatnonzero(_rejectable(extreme, alpha)):
        found[pair] = min(1.0, 2.0 * _not_above(near[pair], limits[pair]) / 2.0**n)
    return found


def _rejectable(extreme: npt.NDArray[np.int64], alpha: float) -> npt.NDArray[np.bool_]:
    """Pairs whose p may be as low as Holm's last step: it depends on how many are rejected before it."""
    possible = np.ones(len(extreme), bool)
    shares = extreme / _SCREEN
    while True:
        chance = alpha / (len(extreme) - int(possible.sum()) + 1) / 2.0
        with np.errstate(divide="ignore", invalid="ignore"):
            rest = np.where(shares < 1.0, (1.0 - shares) * np.log((1.0 - shares) / (1.0 - chance)), 0.0)
            far = np.where(shares > chance, shares * np.log(shares / chance) + rest, 0.0)
        left = possible & (_SCREEN * far < _SURE)
        if left.sum() == possible.sum():
            return left
        possible = left


def _not_above(values: Floats, limit: float) -> int:
    """Subsets, the empty one included, whose sum is at most limit."""
    if values.min() >= 0.0 and limit < values[values > 0.0].min(initial=math.inf):
        return int(2 ** np.count_nonzero(values == 0.0))
    half = len(values) // 2
    few = np.sort(np.append(_subset_sums(values[:half].tolist()), 0.0))
    many = np.append(_subset_sums(values[half:].tolist()), 0.0)
    return int(np.searchsorted(few, limit - many, side="right").sum())


def least_p(n: int) -> float:
    """The smallest p of `many_sign_flips` over n families."""
    return 2.0 ** (1 - n) if n <= MANY_FAMILIES else 2.0 / (_DRAWS + 1)


def share_interval(shares: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Interval of the mean of shares: (n,) in 0..1, one per family; None below LEAST_FAMILIES and for K = 0.

    ValueError: a share outside 0..1, confidence outside (0.5, 1).
    """
    alpha = _alpha(confidence)
    checked = sorted(finite(shares, "share_interval"))
    require(checked[0] >= 0.0 and checked[-1] <= 1.0, "share_interval: shares must lie in 0..1")
    found = _inverted(checked, _subset_sums(checked), alpha, DUST, 1.0)
    return None if found is None else Interval(max(0.0, found.low), found.high)


def paired_ratio(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float = 0.95
) -> PairedRatio | None:
    """The ratio of means of (n,) paired values, any units, with the interval that inverts the sign-flip test.

    The interval holds all r for which the test does not reject numerator - r * denominator (Fieller's method
    with another test). A subset whose denominators have the opposite sign counts against both limits, so
    limits exist exactly where the denominators' own interval excludes 0. Interval None without `unbounded`:
    too few values, or the same ratio in every subset. None: the denominators have the mean 0. ValueError:
    values that are not finite, lengths that differ, confidence outside (0.5, 1).
    """
    alpha = _alpha(confidence)
    x, y = finite(numerators, "numerators"), finite(denominators, "denominators")
    require(len(x) == len(y), f"paired_ratio: {len(x)} numerators and {len(y)} denominators")
    mean, dust = mean_of(y), DUST * max(map(abs, y))
    if abs(mean) <= dust:
        return None
    side = math.copysign(1.0, mean)
    pairs = sorted((side * below, side * above) for above, below in zip(x, y, strict=True))
    under, over = _subset_sums([pair[0] for pair in pairs]), _subset_sums([pair[1] for pair in pairs])
    ratio, rank = mean_of(x) / mean, _rank(alpha, len(under))
    if len(x) < LEAST_FAMILIES or rank < 1:
        return PairedRatio(ratio, None, unbounded=False)
    clear = under > dust * len(y)
    spare = rank - int(np.count_nonzero(~clear))
    if spare < 1:
        return PairedRatio(ratio, None, unbounded=True)
    ratios = over[clear] / under[clear]
    ratios.partition((spare - 1, len(ratios) - spare))
    low, high = float(ratios[spare - 1]), float(ratios[-spare])
    if high - low <= 1e3 * DUST * max(abs(low), abs(high)):
        return PairedRatio(ratio, None, unbounded=False)
    return PairedRatio(ratio, Interval(low, high), unbounded=False)
