"""What a study can detect, in words: from its plan alone, or after the fact.

Which of the two it is stands in the statement; what was seen is never passed off as planned.
"""

from __future__ import annotations

import math
from statistics import stdev
from typing import Final

from harness import stats
from harness.report.figures import plural
from harness.report.records import Detectable

ASSUMED_SD: Final = {"deployed": 0.5, "correct": 0.3, "compiles": 0.3}
"""Between families: 0.5 of the log ratio (protocols.md, Lift study); 0.3 of a share [own]."""
_NO_SPREAD: Final = 1e-9  # rounding


def least_families(alpha: float) -> int:
    """Below, a decision is inconclusive: too few to infer, or too few for any p to be at most alpha."""
    return max(stats.LEAST_FAMILIES, stats.fewest_families(alpha))


def detectable(metric: str, n_families: int, alpha: float = 0.05) -> Detectable:
    """What a study of so many families can detect on its primary metric, from its plan alone."""
    return _detectable(metric, n_families, alpha, ASSUMED_SD[metric], "assumed")


def minimum_detectable(metric: str, n_families: int, alpha: float) -> str:
    """The minimum detectable effect, stated before a run."""
    return f"minimum detectable effect: {detectable(metric, n_families, alpha).statement}"


def detected(metric: str, lift: stats.Lift, alpha: float) -> Detectable | None:
    """The same after the fact, with the spread between families that was seen; None where there is none."""
    if lift.n_families < 2:
        return None
    sd = stdev(difference for _, difference in lift.per_family)
    if sd <= _NO_SPREAD:
        return None
    return _detectable(metric, lift.n_families, alpha, sd, "observed")


def _detectable(metric: str, n_families: int, alpha: float, sd: float, whose: str) -> Detectable:
    ratio_unit = metric == "deployed"
    spread = f"{whose} sd {sd:.2g} of the {'log ratio' if ratio_unit else 'share'}"
    plan = f"{plural(n_families, 'family')} ({spread})"
    lead = "With" if whose == "assumed" else "After the fact: with"
    least = least_families(alpha)
    effect = stats.smallest_effect(sd, n_families, alpha=alpha) if n_families >= least else None
    if effect is None:
        statement = f"{lead} {plan} nothing can be decided: at least {least} families are needed."
        return Detectable(n_families=n_families, sd=sd, effect=None, statement=statement)
    if ratio_unit:
        effect = math.exp(effect)
    text = f"x{effect:.2f}" if ratio_unit else f"{100 * effect:.0f} points"
    level = "" if alpha == 0.05 else f" at alpha {alpha:g}"
    statement = f"{lead} {plan} a true lift in {metric} of {text} is detected with 80% power{level}."
    if not ratio_unit and effect > 1.0:
        statement = f"{lead} {plan} no lift in {metric} is detected with 80% power{level}."
    return Detectable(n_families=n_families, sd=sd, effect=effect, statement=statement)
