"""Point estimates, intervals and tests on plain numbers, pure and deterministic.

A result that cannot be computed is None, never NaN and never a zero-width interval; bad input is a
ValueError.
"""

from harness.stats.lift import Lift, Observation, deployed, paired_lift
from harness.stats.means import (
    Estimate,
    Interval,
    RatioEstimate,
    geometric_mean,
    log_ratio_interval,
    mean_interval,
    median_half_width,
    median_iqr,
)
from harness.stats.power import (
    fewest_families,
    minimum_detectable_ratio,
    power_to_detect,
    smallest_effect,
    units_needed,
)
from harness.stats.rates import clopper_pearson_low, fast_p, fisher_exact, holm, pass_at_k, pass_hat_k, wilson
from harness.stats.signflip import (
    LEAST_FAMILIES,
    PairedRatio,
    SignFlip,
    paired_ratio,
    share_interval,
    sign_flip,
)

__all__ = [
    "LEAST_FAMILIES",
    "Estimate",
    "Interval",
    "Lift",
    "Observation",
    "PairedRatio",
    "RatioEstimate",
    "SignFlip",
    "clopper_pearson_low",
    "deployed",
    "fast_p",
    "fewest_families",
    "fisher_exact",
    "geometric_mean",
    "holm",
    "log_ratio_interval",
    "mean_interval",
    "median_half_width",
    "median_iqr",
    "minimum_detectable_ratio",
    "paired_lift",
    "paired_ratio",
    "pass_at_k",
    "pass_hat_k",
    "power_to_detect",
    "share_interval",
    "sign_flip",
    "smallest_effect",
    "units_needed",
    "wilson",
]
