"""Lifts of many simulated studies at once, as `paired_lift` gives them one by one, for planning.

Deterministic; p is exact up to _EXACT families, else from random flips, enough of them for the smallest
level that is asked about.
"""

import functools
import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from harness.stats.lift import Lift
from harness.stats.means import require, share

Floats = npt.NDArray[np.float64]
_EXACT: Final = 12
_FLIPS: Final = (2_000, 100_000)
_FLIPS_PER_LEVEL: Final = 25
"""Flips that fall below the level when p is right at it: p is then known within a fifth of itself."""
_COARSE: Final = (200, 0.2)
"""A first look at p, and above which it is no decision's matter and stays so: 0.05 is 10 errors away."""
_CHUNK: Final = 100
_SEED: Final = 20_240_301


@functools.cache
def _every_sign(n: int) -> Floats:
    """(2^(n - 1), n): the first sign is +, the other half is the mirror image."""
    rows = np.arange(2 ** (n - 1))[:, None] >> np.arange(n - 1)[None, :]
    signs: Floats = np.hstack([np.ones((len(rows), 1)), 1.0 - 2.0 * (rows & 1)])
    return signs


@functools.lru_cache(maxsize=4)
def _random_signs(flips: int, n: int) -> npt.NDArray[np.float32]:
    drawn = np.random.default_rng((_SEED, flips, n)).integers(0, 2, size=(flips, n), dtype=np.int8)
    return drawn.astype(np.float32) * np.float32(2.0) - np.float32(1.0)


def _extreme(signs: npt.NDArray[Any], differences: Floats) -> npt.NDArray[np.int64]:
    """(studies,): rows of signs for which a study's sum is at least as far from 0 as it is."""
    found = np.empty(len(differences), dtype=np.int64)
    bound = np.abs(differences.sum(axis=1)) * (1.0 - 1e-9)  # a tie counts, also where rounding splits it
    for start in range(0, len(differences), _CHUNK):
        part = slice(start, start + _CHUNK)
        sums = signs @ differences[part].T.astype(signs.dtype)
        found[part] = np.count_nonzero(np.abs(sums, out=sums) >= bound[part].astype(sums.dtype), axis=0)
    return found


def _sign_flip(differences: Floats, level: float) -> Floats:
    """(studies,): two-sided p of sum = 0."""
    n = differences.shape[1]
    if n <= _EXACT:
        return np.asarray(_extreme(_every_sign(n), differences) / 2.0 ** (n - 1))
    coarse, far = _COARSE
    p = np.asarray((1.0 + _extreme(_random_signs(coarse, n), differences)) / (coarse + 1.0))
    close = p <= far
    flips = min(_FLIPS[1], max(_FLIPS[0], math.ceil(_FLIPS_PER_LEVEL / level)))
    p[close] = (1.0 + _extreme(_random_signs(flips, n), differences[close])) / (flips + 1.0)
    return p


def lifts_of_studies(differences: Floats, confidence: float, level: float) -> list[Lift]:
    """One Lift per row of differences: (studies, families), each family's with - without.

    level: the smallest p that a decision asks about, such as alpha over the number of decisions. Only what
    a decision needs is filled in: no interval, no means of the arms, no families by name. ValueError: fewer
    than 2 families, no study, confidence or level outside (0, 1).
    """
    share(confidence, "confidence")
    share(level, "level")
    require(
        differences.ndim == 2 and min(differences.shape) >= 1, "lifts_of_studies: need (studies, families)"
    )
    n = differences.shape[1]
    require(n >= 2, f"lifts_of_studies: need 2 families, got {n}")
    means, ps = differences.mean(axis=1), _sign_flip(differences, level)
    different = np.count_nonzero(differences, axis=1)
    return [
        Lift(None, None, mean, None, p, n, n, 0, (), confidence, m)
        for mean, p, m in zip(means.tolist(), ps.tolist(), different.tolist(), strict=True)
    ]
