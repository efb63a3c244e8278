"""How large a study must be: power, the smallest effect that it detects, and the families that it needs.

The two-sided t approximation to the sign-flip test over families (Armitage and Berry, ch. 6). With up to
about 12 families the exact test finds up to 5 points less (shares of few replies, which tie: up to 10); from
15 up both agree within 2 points (shares: 4). `sd` is the
standard deviation of the families' differences: its parts, between families and between replies, add up as in
Miller (2024), "Adding Error Bars to Evals", arXiv 2411.00640, section 5. Nothing is simulated.
"""

import math
from statistics import NormalDist

from harness.stats.base import require, share
from harness.stats.timing_interval import t_cdf, t_ppf


def sd_of_differences(between: float, reply_variance: float, replies: float) -> float:
    """sd of families' differences: sqrt(between^2 + reply_variance / replies), replies per family and arm.

    `between` is the sd of the true differences; `reply_variance` that of one reply with minus one without
    (omega and sigma_A^2 + sigma_B^2 in Miller 2024).
    """
    require(between >= 0.0 and reply_variance >= 0.0 and replies > 0.0, f"{between=}, {reply_variance=}")
    return math.sqrt(between * between + reply_variance / replies)


def share_noise(baseline: float | None) -> tuple[float, float, float]:
    """Variance of one reply with minus one without, of shares that differ by e: (a, b, c) of a + b e + c e^2.

    The sum of two Bernoulli variances p (1 - p), p = baseline and baseline + e. It is largest where both lie
    around one half, which None stands for: (1 - e^2) / 2. It is an upper limit where tasks differ in p.
    """
    if baseline is None:
        return 0.5, 0.0, -0.5
    require(0.0 <= baseline <= 1.0, f"baseline must lie between 0 and 1, got {baseline}")
    return 2.0 * baseline * (1.0 - baseline), 1.0 - 2.0 * baseline, -1.0


def smallest_share_effect(in_sds: float, between: float, replies: float, baseline: float | None) -> float:
    """The e that equals in_sds x sd_of_differences, with share_noise at e: the root of a quadratic."""
    scale = in_sds * in_sds
    a, b, c = (part * scale / replies for part in share_noise(baseline))
    square, rest = 1.0 - c, scale * between * between + a
    return (b + math.sqrt(b * b + 4.0 * square * rest)) / (2.0 * square)


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
