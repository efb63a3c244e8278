"""Lift and spending turn by turn, for runs in which a student may repair its kernel.

Every trial stands in every turn: one that ended, or kept its kernel, is carried forward with the grade and
the spending that it had.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from harness.report.metrics import Metric, out
from harness.report.records import TurnPoint
from harness.report.scoring import Score
from harness.report.spending import levels


def turn_points(
    metric: Metric,
    treatment: Sequence[Sequence[Score]],
    control: Sequence[Sequence[Score]],
    confidence: float,
) -> Iterable[TurnPoint]:
    """One point per turn; treatment and control hold an arm's scores after turn 1, 2, ..."""
    for index, (with_, without) in enumerate(zip(treatment, control, strict=True)):
        lift = metric.lift(with_, without, confidence, tested=False)

        def shown(value: float | None) -> float | None:
            return None if value is None else out(metric.unit, value)

        tokens = levels(lambda s: s.usage.tokens, with_, without)
        dollars = levels(lambda s: s.usage.cost_usd, with_, without)
        yield TurnPoint(
            turn=index + 1,
            control=shown(lift.mean_without),
            treatment=shown(lift.mean_with),
            lift=shown(lift.lift),
            low=shown(lift.interval.low if lift.interval else None),
            high=shown(lift.interval.high if lift.interval else None),
            treatment_tokens=tokens[0],
            control_tokens=tokens[1],
            treatment_cost_usd=dollars[0],
            control_cost_usd=dollars[1],
            lift_per_usd=_per_usd(metric, lift.lift, *dollars),
        )


def _per_usd(metric: Metric, lift: float | None, with_: float | None, without: float | None) -> float | None:
    if lift is None or with_ is None or without is None or with_ <= without:
        return None
    gained = lift if metric.unit == "share" else math.expm1(lift)
    return 100.0 * gained / (with_ - without)
