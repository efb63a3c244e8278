"""Estimates, intervals, tests and power on plain numbers; pure and deterministic.

A result that cannot be computed is None, never NaN and never a zero-width interval; bad input is a
ValueError.
"""

from harness.stats.intervals import Interval, log_ratio_interval, median_half_width, median_iqr
from harness.stats.lift import (
    Decision,
    Lift,
    Observation,
    adjusted_together,
    decide,
    deployed,
    families_needed,
    fewest_families,
    paired_lift,
    power_to_detect,
    smallest_effect,
)
from harness.stats.rates import fast_p, fisher_exact, holm, pass_at_k, pass_hat_k, wilson
from harness.stats.signflip import LEAST_FAMILIES, PairedRatio, paired_ratio, share_interval, sign_flip

__all__ = [
    "LEAST_FAMILIES", "Decision", "Interval", "Lift", "Observation", "PairedRatio",
    "adjusted_together", "decide", "deployed", "families_needed", "fast_p", "fewest_families",
    "fisher_exact", "holm", "log_ratio_interval", "median_half_width", "median_iqr", "paired_lift",
    "paired_ratio", "pass_at_k", "pass_hat_k", "power_to_detect", "share_interval", "sign_flip",
    "smallest_effect", "wilson",
]  # fmt: skip
