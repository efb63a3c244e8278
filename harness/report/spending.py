"""What a skill costs: extra tokens and dollars per trial, and per additional correct kernel.

Owns: these figures. Does not own: tokens and dollars of one arm (arms.py) or wording (headline.py).
Invariant: unknown stays unknown; where there is no additional correct kernel there is no price of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness import stats
from harness.report.metrics import flag_metric
from harness.report.records import Spending
from harness.report.scoring import Score


def levels(
    get: Callable[[Score], float | None], treatment: Sequence[Score], control: Sequence[Score]
) -> tuple[float | None, float | None]:
    """(treatment, control) means by family of what every trial has; None, None where one is unknown."""
    shared = {s.task for s in treatment} & {s.task for s in control}
    counted = [s for s in (*treatment, *control) if s.task in shared]
    if not counted or any(get(score) is None for score in counted):
        return None, None
    lift = flag_metric(get).lift(treatment, control, tested=False)
    return lift.mean_with, lift.mean_without


def _extra(
    get: Callable[[Score], float | None], treatment: Sequence[Score], control: Sequence[Score]
) -> float | None:
    with_, without = levels(get, treatment, control)
    return None if with_ is None or without is None else with_ - without


def spending(
    treatment: Sequence[Score], control: Sequence[Score], correct: stats.Lift | None, alpha: float
) -> Spending | None:
    """Treatment minus control; correct: the lift in correctness, None where it was not measured."""
    if not {s.task for s in treatment} & {s.task for s in control}:
        return None
    inputs = _extra(lambda s: s.usage.input_tokens, treatment, control)
    outputs = _extra(lambda s: s.usage.output_tokens, treatment, control)
    cost = _extra(lambda s: s.usage.cost_usd, treatment, control)
    tokens = None if inputs is None or outputs is None else inputs + outputs
    gained = None if correct is None else correct.lift
    p_value = None if correct is None else correct.p_value

    def per_correct(extra: float | None) -> float | None:
        return extra / gained if extra is not None and gained is not None and gained > 0.0 else None

    return Spending(
        input_tokens=inputs,
        output_tokens=outputs,
        cost_usd=cost,
        extra_correct=gained,
        extra_correct_sure=p_value is not None and p_value < alpha and (gained or 0.0) > 0.0,
        cost_usd_per_extra_correct=per_correct(cost),
        tokens_per_extra_correct=per_correct(tokens),
    )
