"""Which errors a skill removed or introduced.

A class is called removed or introduced only where its adjusted p value is at most the run's alpha; which
classes are tested does not depend on the arm they occur in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from harness import stats
from harness.outcome import POLICY, Cause, Verdict
from harness.report.arms import rate_of
from harness.report.metrics import flag_metric
from harness.report.records import ErrorClass, Rate
from harness.report.scoring import Score

Group = Literal["cause", "first build error"]
Change = Literal["removed", "introduced", "fewer", "more", "as many"]
_BEFORE_LOADING = frozenset(
    cause
    for cause, policy in POLICY.items()
    if policy.verdict in (Verdict.NO_PROJECT, Verdict.BUILD_FAILED) or cause is Cause.BUILD_TIMEOUT
)


def _is_cause(cause: Cause) -> Callable[[Score], bool]:
    return lambda score: score.cause is cause


def _is_first_error(kind: str) -> Callable[[Score], bool]:
    return lambda score: score.first_error == kind


def _classes(
    scores: Sequence[Score], *, built: bool, checked: bool
) -> Iterable[tuple[Group, str, Callable[[Score], bool]]]:
    """Every class that occurs in either arm and whose stage every trial went through."""
    for cause in sorted({score.cause for score in scores}):
        verdict = POLICY[cause].verdict
        if verdict in (Verdict.CORRECT, Verdict.NOT_MEASURED):
            continue
        if checked or (built and cause in _BEFORE_LOADING) or verdict is Verdict.NO_PROJECT:
            yield "cause", cause.value, _is_cause(cause)
    kinds = {score.first_error for score in scores if score.first_error is not None}
    for kind in sorted(kinds) if built else ():
        yield "first build error", kind, _is_first_error(kind)


def _change(control: Rate, treatment: Rate, difference: float | None, significant: bool) -> Change:
    if difference is not None and significant:
        return "removed" if difference < 0.0 else "introduced"
    first = (control.count * treatment.n, treatment.count * control.n)
    return "fewer" if first[0] > first[1] else "more" if first[0] < first[1] else "as many"


def error_classes(
    treatment: Sequence[Score],
    control: Sequence[Score],
    alpha: float,
    minimum_families: int,
    *,
    built: bool,
    checked: bool,
) -> tuple[ErrorClass, ...]:
    """Every class of error in both arms; built, checked: whether every trial went through those stages."""
    shared = {s.task for s in treatment} & {s.task for s in control}
    with_, without = ([s for s in scores if s.task in shared] for scores in (treatment, control))
    classes = list(_classes([*with_, *without], built=built, checked=checked))
    lifts = [flag_metric(hit).lift(with_, without, 1.0 - alpha) for _, _, hit in classes]
    adjusted = stats.holm([lift.p_value for lift in lifts])
    made = []
    for (group, name, hit), lift, p_holm in zip(classes, lifts, adjusted, strict=True):
        rates = [rate_of([hit(s) for s in scores]) for scores in (with_, without)]
        clear = p_holm is not None and p_holm <= alpha and lift.n_families >= minimum_families
        one = ErrorClass(
            group=group,
            name=name,
            control=rates[1],
            treatment=rates[0],
            difference=lift.lift,
            low=lift.interval.low if lift.interval else None,
            high=lift.interval.high if lift.interval else None,
            p_value=lift.p_value,
            p_holm=p_holm,
            n_families=lift.n_families,
            change=_change(rates[1], rates[0], lift.lift, clear),
        )
        made.append(one)
    return tuple(sorted(made, key=_order))


def _order(one: ErrorClass) -> tuple[bool, float, str, str]:
    return one.change not in ("removed", "introduced"), -abs(one.difference or 0.0), one.group, one.name
