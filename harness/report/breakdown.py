"""What stands beside the lift of two arms: fast_p, pass@k, turns, changes of verdict, classes of error."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Final, Literal

from harness import stats
from harness.outcome import Cause, Verdict
from harness.report import comparison_schema as schema
from harness.report import metrics
from harness.report.arms import arm_means, rate_of
from harness.report.figures import percent

VERDICTS: Final = (
    Verdict.CORRECT, Verdict.NOT_MEASURED, Verdict.WRONG_RESULT, Verdict.TIMED_OUT, Verdict.CRASHED,
    Verdict.LOAD_FAILED, Verdict.BUILD_FAILED, Verdict.NO_PROJECT, Verdict.CHEATED,
)  # fmt: skip
"""Best first, by how far a project came."""
_MOVEMENTS: Final = 5
_SMALLEST_MOVEMENT: Final = 0.005
_BEFORE_LOADING: Final = frozenset(
    cause
    for cause in Cause
    if cause.verdict in (Verdict.NO_PROJECT, Verdict.BUILD_FAILED) or cause is Cause.BUILD_TIMEOUT
)


def fast_points(
    treatment: metrics.Scores, control: metrics.Scores, confidence: float
) -> Iterable[schema.FastPoint]:
    """The fast_p curve of both arms; nothing without a task in both."""
    for threshold in metrics.THRESHOLDS:
        metric = metrics.fast_metric(threshold)
        lift = metric.lift(treatment, control, confidence, tested=False)
        if lift.n_families:
            yield schema.FastPoint.model_validate({"threshold": threshold} | metric.effect(lift))


def kernelbench_points(
    treatment: metrics.Scores, control: metrics.Scores, confidence: float
) -> Iterable[schema.KernelBenchPoint]:
    """fast_p by KernelBench's own rules, and by ours over the same trials; nothing without its problems."""
    arms = [[s for s in scores if s.kernelbench is not None] for scores in (control, treatment)]
    if not all(arms):
        return
    shares = [stats.fast_p([s.kernelbench or None for s in arm], metrics.THRESHOLDS) for arm in arms]
    ours = {point.threshold: point for point in fast_points(arms[1], arms[0], confidence)}
    for at, without, with_ in zip(metrics.THRESHOLDS, *shares, strict=True):
        yield schema.KernelBenchPoint(threshold=at, control=without, treatment=with_, ours=ours.get(at))


def pass_lifts(
    treatment: metrics.Scores, control: metrics.Scores, repeats: int, confidence: float
) -> Iterable[schema.PassLift]:
    """pass@k and pass^k for every k up to repeats that a task in both arms has."""
    estimators = {"pass@k": stats.pass_at_k, "pass^k": stats.pass_hat_k}
    for k in range(1, repeats + 1):
        for name, estimator in estimators.items():
            metric = metrics.pass_metric(k, estimator)
            lift = metric.lift(treatment, control, confidence, tested=False)
            if lift.n_families:
                made = {"estimator": name, "k": k, "n_tasks": lift.n_tasks}
                yield schema.PassLift.model_validate(made | metric.effect(lift))


def turn_points(
    metric: metrics.Metric,
    treatment: Sequence[metrics.Scores],
    control: Sequence[metrics.Scores],
    confidence: float,
) -> Iterable[schema.TurnPoint]:
    """One point per turn; treatment and control hold an arm's scores after turn 1, 2, ..."""
    for index, (with_, without) in enumerate(zip(treatment, control, strict=True), start=1):
        lift = metric.lift(with_, without, confidence, tested=False)
        tokens = arm_means(lambda s: s.usage.tokens, with_, without)
        dollars = arm_means(lambda s: s.usage.cost_usd, with_, without)
        made = {
            "turn": index,
            "treatment_tokens": tokens[0],
            "control_tokens": tokens[1],
            "treatment_cost_usd": dollars[0],
            "control_cost_usd": dollars[1],
            "lift_per_usd": _per_usd(metric, lift.lift, *dollars),
        }
        yield schema.TurnPoint.model_validate(made | metric.effect(lift))


def _per_usd(
    metric: metrics.Metric, lift: float | None, with_: float | None, without: float | None
) -> float | None:
    if lift is None or with_ is None or without is None or with_ <= without:
        return None
    gained = lift if metric.unit == "share" else math.expm1(lift)
    return 100.0 * gained / (with_ - without)


def transitions(treatment: metrics.Scores, control: metrics.Scores) -> schema.Transitions | None:
    """The expected joint of both arms' verdicts; None without a task in both."""
    after, before = _verdicts(treatment), _verdicts(control)
    tasks = sorted(after.keys() & before.keys())
    if not tasks:
        return None
    in_family = Counter(family for family, _ in tasks)
    parts: dict[tuple[Verdict, Verdict], list[float]] = defaultdict(list)
    for key in tasks:
        weight = 1.0 / (in_family[key[0]] * len(in_family))
        for old, p in before[key].items():
            for new, q in after[key].items():
                parts[old, new].append(weight * p * q)
    joint = {pair: math.fsum(found) for pair, found in parts.items()}
    order = [verdict for verdict in VERDICTS if any(verdict in pair for pair in joint)]
    cells = [(old, new) for old in order for new in order if (old, new) in joint]
    return schema.Transitions(
        n_tasks=len(tasks),
        verdicts=tuple(order),
        cells=tuple(
            schema.Transition(control=old, treatment=new, share=joint[old, new]) for old, new in cells
        ),
        movements=tuple(sorted(_movements(joint, order), key=lambda one: -one.net)[:_MOVEMENTS]),
    )


def _verdicts(scores: metrics.Scores) -> dict[tuple[str, str], dict[Verdict, float]]:
    """Family and task to the share of each verdict."""
    found: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for score in scores:
        found[score.family, score.task].append(score.verdict)
    return {key: {v: n / len(seen) for v, n in Counter(seen).items()} for key, seen in found.items()}


def _movements(
    joint: Mapping[tuple[Verdict, Verdict], float], order: Sequence[Verdict]
) -> Iterable[schema.Movement]:
    for one, other in combinations(order, 2):
        up, down = joint.get((other, one), 0.0), joint.get((one, other), 0.0)
        before, after = (other, one) if up >= down else (one, other)
        net = abs(up - down)
        if net >= _SMALLEST_MOVEMENT:
            words = f"{before.value} -> {after.value}: {percent(net)} of trials"
            there, back = max(up, down), min(up, down)
            yield schema.Movement(before=before, after=after, net=net, there=there, back=back, words=words)


_ErrorName = tuple[Literal["cause", "first build error"], str]


def error_classes(
    treatment: metrics.Scores,
    control: metrics.Scores,
    alpha: float,
    minimum_families: int,
    *,
    built: bool,
    checked: bool,
) -> tuple[schema.ErrorClass, ...]:
    """Every class of error in either arm, significant ones first; built, checked: what all trials reached."""
    shared = {s.task for s in treatment} & {s.task for s in control}
    with_, without = ([s for s in scores if s.task in shared] for scores in (treatment, control))
    classes = list(_classes([*with_, *without], built=built, checked=checked))
    hits = [partial(_falls_into, *one) for one in classes]
    lifts = [metrics.share_metric(hit).lift(with_, without, 1.0 - alpha) for hit in hits]
    adjusted = stats.holm([lift.p_value for lift in lifts])
    made = []
    for (group, name), hit, lift, p_holm in zip(classes, hits, lifts, adjusted, strict=True):
        before, after = (rate_of([hit(s) for s in scores]) for scores in (without, with_))
        clear = p_holm is not None and p_holm <= alpha and lift.n_families >= minimum_families
        fewer = after.count * before.n - before.count * after.n
        change = "fewer" if fewer < 0 else "more" if fewer > 0 else "as many"
        if clear and lift.lift:
            change = "removed" if lift.lift < 0.0 else "introduced"
        fields = {
            "group": group,
            "name": name,
            "control": before,
            "treatment": after,
            "difference": lift.lift,
            "p_value": lift.p_value,
            "p_holm": p_holm,
            "n_families": lift.n_families,
            "change": change,
        }
        made.append(schema.ErrorClass.model_validate(fields | schema.ends(lift.interval)))
    return tuple(sorted(made, key=_order))


def _order(one: schema.ErrorClass) -> tuple[bool, float, str, str]:
    return one.change not in ("removed", "introduced"), -abs(one.difference or 0.0), one.group, one.name


def _falls_into(group: str, name: str, score: metrics.Score) -> bool:
    return name == (score.cause.value if group == "cause" else score.first_error)


def _classes(scores: metrics.Scores, *, built: bool, checked: bool) -> Iterable[_ErrorName]:
    """Every class that occurs in either arm and whose stage every trial went through."""
    for cause in sorted({score.cause for score in scores}):
        verdict = cause.verdict
        reached = checked or (built and cause in _BEFORE_LOADING) or verdict is Verdict.NO_PROJECT
        if reached and verdict not in (Verdict.CORRECT, Verdict.NOT_MEASURED):
            yield "cause", cause.value
    kinds = {score.first_error for score in scores if score.first_error is not None}
    for kind in sorted(kinds) if built else ():
        yield "first build error", kind
