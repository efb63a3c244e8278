"""How large a study must be, and what a study can detect, before it is run.

From the plan alone; nothing here looks at a result.
"""

import math
from statistics import NormalDist

from harness.stats.means import require, share
from harness.stats.student_t import t_cdf, t_ppf


def minimum_detectable_ratio(sd: float, n_units: int, power: float = 0.8, alpha: float = 0.05) -> float:
    """Smallest true ratio that n_units independent units detect with the given power, two-sided.

    exp((t[1 - alpha/2] + t[power]) * sd / sqrt(n_units)), n_units - 1 df, sd of one unit's (paired)
    natural log ratio: the t approximation to the one-sample test; Armitage and Berry, ch. 6.
    ValueError: sd not finite and > 0, n_units < 2, power or alpha outside (0, 1).
    """
    require(0.0 < sd < math.inf, f"sd must be finite and above 0, got {sd}")
    require(n_units >= 2, f"n_units must be at least 2, got {n_units}")
    df = n_units - 1
    quantiles = t_ppf(1.0 - share(alpha, "alpha") / 2.0, df) + t_ppf(share(power, "power"), df)
    return math.exp(quantiles * sd / math.sqrt(n_units))


def fewest_families(alpha: float = 0.05) -> int:
    """Families below which no result can be significant: the smallest p, 2 / 2^n, is above alpha."""
    return math.ceil(math.log2(2.0 / share(alpha, "alpha")))


def _all_must_agree(n_units: int, alpha: float) -> bool:
    """Whether a sign-flip p of at most alpha takes the same sign in every unit: so with the fewest units."""
    return n_units == fewest_families(alpha)


def power_to_detect(effect: float, sd: float, n_units: int, alpha: float = 0.05) -> float:
    """Chance that n_units families detect a true mean of effect > 0, in the units of sd, two-sided.

    The t approximation (0 below `fewest_families`). With the fewest families all must agree, which for
    normal differences has the chance Phi(effect / sd)^n: the smaller of both counts. With up to about
    12 families the sign-flip test still takes up to 5 points off; from 15 up both agree within 2 points.
    ValueError: effect or sd not finite and > 0, n_units < 2, alpha outside (0, 1).
    """
    require(0.0 < effect < math.inf, f"effect must be finite and above 0, got {effect}")
    require(0.0 < sd < math.inf, f"sd must be finite and above 0, got {sd}")
    require(n_units >= 2, f"n_units must be at least 2, got {n_units}")
    if n_units < fewest_families(alpha):
        return 0.0
    df = n_units - 1
    found = t_cdf(effect * math.sqrt(n_units) / sd - t_ppf(1.0 - alpha / 2.0, df), df)
    return min(found, NormalDist().cdf(effect / sd) ** n_units) if _all_must_agree(n_units, alpha) else found


def smallest_effect(sd: float, n_units: int, power: float = 0.8, alpha: float = 0.05) -> float | None:
    """The effect that has this power; None below `fewest_families`. ValueError: as `power_to_detect`."""
    effect = math.log(minimum_detectable_ratio(sd, n_units, power, alpha))
    if n_units < fewest_families(alpha):
        return None
    agreed = sd * NormalDist().inv_cdf(power ** (1.0 / n_units))
    return max(effect, agreed) if _all_must_agree(n_units, alpha) else effect


def units_needed(effect: float, sd: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Fewest families that detect effect with the given power.

    ValueError: as `power_to_detect`, or power outside (0, 1).
    """
    share(power, "power")
    low = high = fewest_families(alpha)
    while power_to_detect(effect, sd, high, alpha) < power:
        low, high = high + 1, 2 * high
    while low < high:
        middle = (low + high) // 2
        enough = power_to_detect(effect, sd, middle, alpha) >= power
        low, high = (low, middle) if enough else (middle + 1, high)
    return low
