"""How large a study must be: power, the smallest effect that it detects, and the families that it needs.

The two-sided t approximation to the sign-flip test over families (Armitage and Berry, ch. 6). With up to
about 12 families the exact test finds up to 5 points less; from 15 up both agree within 2 points. `sd` is the
standard deviation between families.
"""

import math
from statistics import NormalDist

from harness.stats.base import require, share
from harness.stats.timing_interval import t_cdf, t_ppf


def fewest_families(alpha: float = 0.05) -> int:
    """Families below which no result can be significant: the smallest p, 2 / 2^n, is above alpha."""
    return math.ceil(math.log2(2.0 / share(alpha, "alpha")))


def power_to_detect(effect: float, sd: float, n_families: int, alpha: float = 0.05) -> float:
    """Chance that n_families detect a true mean of effect, in the units of sd; 0 below `fewest_families`.

    With exactly the fewest families all must agree, which for normal differences has the chance
    Phi(effect / sd)^n; the smaller of both figures counts.
    """
    require(min(effect, sd) > 0.0 and n_families >= 2, f"effect and sd must be above 0: {effect=}, {sd=}")
    fewest, df = fewest_families(alpha), n_families - 1
    if n_families < fewest:
        return 0.0
    power = t_cdf(effect * math.sqrt(n_families) / sd - t_ppf(1.0 - alpha / 2.0, df), df)
    return min(power, NormalDist().cdf(effect / sd) ** n_families) if n_families == fewest else power


def smallest_effect(sd: float, n_families: int, power: float = 0.8, alpha: float = 0.05) -> float | None:
    """The effect that is detected with this power; None below `fewest_families`."""
    require(sd > 0.0 and n_families >= 2, f"sd must be above 0: {sd=}")
    fewest, df = fewest_families(alpha), n_families - 1
    quantiles = t_ppf(1.0 - alpha / 2.0, df) + t_ppf(share(power, "power"), df)
    if n_families < fewest:
        return None
    effect = quantiles * sd / math.sqrt(n_families)
    unanimous = sd * NormalDist().inv_cdf(power ** (1.0 / n_families))
    return max(effect, unanimous) if n_families == fewest else effect


def families_needed(effect: float, sd: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Fewest families that detect effect with this power."""
    share(power, "power")
    low = high = fewest_families(alpha)
    while power_to_detect(effect, sd, high, alpha) < power:
        low, high = high + 1, 2 * high
    while low < high:
        middle = (low + high) // 2
        enough = power_to_detect(effect, sd, middle, alpha) >= power
        low, high = (low, middle) if enough else (middle + 1, high)
    return low
