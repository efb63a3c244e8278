"""What a skill costs: extra tokens and dollars per trial, and per additional correct kernel.

Unknown stays unknown; where there is no additional correct kernel there is no price of one, and where that
gain may be none the price has no finite interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness import stats
from harness.report.metrics import by_trial, observations
from harness.report.records import Spending
from harness.report.scoring import Score


def _lift(
    get: Callable[[Score], float | None], treatment: Sequence[Score], control: Sequence[Score]
) -> stats.Lift | None:
    """Treatment minus control, by family; None where one trial of a shared task does not say."""
    shared = {s.task for s in treatment} & {s.task for s in control}
    counted = [s for s in (*treatment, *control) if s.task in shared]
    if not counted or any(get(score) is None for score in counted):
        return None
    return stats.paired_lift(observations(by_trial(get), treatment, control), tested=False)


def levels(
    get: Callable[[Score], float | None], treatment: Sequence[Score], control: Sequence[Score]
) -> tuple[float | None, float | None]:
    """(treatment, control) means by family of what every trial has; None, None where one is unknown."""
    lift = _lift(get, treatment, control)
    return (None, None) if lift is None else (lift.mean_with, lift.mean_without)


def _price(extra: stats.Lift | None, correct: stats.Lift | None) -> stats.PairedRatio | None:
    """What is spent more per additional correct kernel; None where either is unknown or nothing is gained."""
    if extra is None or correct is None or extra.lift is None or correct.lift is None or correct.lift <= 0.0:
        return None
    spent, gained = dict(extra.per_family), dict(correct.per_family)
    bare = stats.PairedRatio(extra.lift / correct.lift, None, unbounded=False)
    if spent.keys() != gained.keys():
        return bare
    found = stats.paired_ratio(
        [spent[family] for family in gained], list(gained.values()), correct.confidence
    )
    return bare if found is None else found


def spending(
    treatment: Sequence[Score], control: Sequence[Score], correct: stats.Lift | None, alpha: float
) -> Spending | None:
    """Treatment minus control; correct: the lift in correctness, None where it was not measured."""
    if not {s.task for s in treatment} & {s.task for s in control}:
        return None
    inputs = _lift(lambda s: s.usage.input_tokens, treatment, control)
    outputs = _lift(lambda s: s.usage.output_tokens, treatment, control)
    both = None if inputs is None or outputs is None else _lift(lambda s: s.usage.tokens, treatment, control)
    cost = _lift(lambda s: s.usage.cost_usd, treatment, control)
    gained = None if correct is None else correct.lift
    p_value = None if correct is None else correct.p_value
    dollars, tokens = _price(cost, correct), _price(both, correct)
    ends = [None if one is None else one.interval for one in (dollars, tokens)]
    return Spending(
        input_tokens=None if inputs is None else inputs.lift,
        output_tokens=None if outputs is None else outputs.lift,
        cost_usd=None if cost is None else cost.lift,
        extra_correct=gained,
        extra_correct_sure=p_value is not None and p_value <= alpha and (gained or 0.0) > 0.0,
        cost_usd_per_extra_correct=None if dollars is None else dollars.ratio,
        tokens_per_extra_correct=None if tokens is None else tokens.ratio,
        cost_usd_per_extra_correct_low=None if ends[0] is None else ends[0].low,
        cost_usd_per_extra_correct_high=None if ends[0] is None else ends[0].high,
        tokens_per_extra_correct_low=None if ends[1] is None else ends[1].low,
        tokens_per_extra_correct_high=None if ends[1] is None else ends[1].high,
        per_extra_correct_unbounded=any(one is not None and one.unbounded for one in (dollars, tokens)),
    )
