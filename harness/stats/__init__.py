"""Estimates, intervals, tests and power on plain numbers; pure and deterministic.

lift             the estimate, paired by task and averaged by family
lift_interval    its interval and p value: the exact sign-flip test
decision         helps, hurts or inconclusive; Holm's adjustment
power            minimum detectable effect, families needed
rates            rates of trials, their intervals and tests; pass@k, fast_p, deployed score
timing_interval  t intervals of timings, medians
base             the record of an interval, checks of inputs, the mean

A result that cannot be computed is None, never NaN and never a zero-width interval; bad input is a
ValueError.
"""

from harness.stats.base import Interval
from harness.stats.decision import Decision, adjusted_together, decide, holm
from harness.stats.lift import Lift, Observation, paired_lift
from harness.stats.lift_interval import (
    LEAST_FAMILIES,
    MANY_FAMILIES,
    Floats,
    PairedRatio,
    least_p,
    many_sign_flips,
    paired_ratio,
    share_interval,
    sign_flip,
)
from harness.stats.power import (
    families_needed,
    fewest_families,
    power_to_detect,
    sd_of_differences,
    share_noise,
    smallest_effect,
    smallest_share_effect,
)
from harness.stats.rates import deployed, fast_p, fisher_exact, pass_at_k, pass_hat_k, wilson
from harness.stats.timing_interval import log_ratio_interval, median_half_width, median_iqr
