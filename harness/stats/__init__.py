"""Point estimates, intervals and tests on plain numbers.

Owns: every formula behind a reported figure. Does not own: which trials count, rounding, wording
of tables. Invariant: pure and deterministic; a result that cannot be computed is None, never NaN
and never a zero-width interval; bad input is a ValueError.
"""

from harness.stats.fieller import PairedRatio, paired_ratio
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
from harness.stats.rates import fast_p, fisher_exact, holm, pass_at_k, pass_hat_k, wilson
from harness.stats.studies import lifts_of_studies

__all__ = [
    "Estimate",
    "Interval",
    "Lift",
    "Observation",
    "PairedRatio",
    "RatioEstimate",
    "deployed",
    "fast_p",
    "fewest_families",
    "fisher_exact",
    "geometric_mean",
    "holm",
    "lifts_of_studies",
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
    "smallest_effect",
    "units_needed",
    "wilson",
]
