"""How large a study must be, and what a study can detect, from its plan alone.

All figures are the two-sided t approximation to the sign-flip test over families (Armitage and Berry, ch. 6):
with up to about 12 families the exact test finds up to 5 points less; from 15 up both agree within 2 points.
`sd` is the standard deviation between families. ValueError: effect or sd not finite and > 0, n_families < 2,
power or alpha outside (0, 1).
"""

import math
from statistics import NormalDist

from harness.stats.intervals import require, share, t_cdf, t_ppf


def fewest_families(alpha: float = 0.05) -> int:
    """Families below which no result can be significant: the smallest p, 2 / 2^n, is above alpha."""
    return math.ceil(math.log2(2.0 / share(alpha, "alpha")))


def _check(positive: dict[str, float], n_families: int) -> None:
    for name, value in positive.items():
        require(0.0 < value < math.inf, f"{name} must be finite and above 0, got {value}")
    require(n_families >= 2, f"n_families must be at least 2, got {n_families}")


def power_to_detect(effect: float, sd: float, n_families: int, alpha: float = 0.05) -> float:
    """Chance that n_families detect a true mean of effect, in the units of sd; 0 below `fewest_families`.

    With exactly the fewest families all must agree, which for normal differences has the chance
    Phi(effect / sd)^n; the smaller of both figures counts.
    """
    _check({"effect": effect, "sd": sd}, n_families)
    fewest, df = fewest_families(alpha), n_families - 1
    if n_families < fewest:
        return 0.0
    power = t_cdf(effect * math.sqrt(n_families) / sd - t_ppf(1.0 - alpha / 2.0, df), df)
    return min(power, NormalDist().cdf(effect / sd) ** n_families) if n_families == fewest else power


def smallest_effect(sd: float, n_families: int, power: float = 0.8, alpha: float = 0.05) -> float | None:
    """The effect that is detected with this power; None below `fewest_families`."""
    _check({"sd": sd}, n_families)
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
