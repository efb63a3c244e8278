"""One model in one arm: rates, speeds, costs and what was read; and what one arm costs more than another."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from harness import stats
from harness.records import Arm, RunRecord, TrialRecord, Turn
from harness.report import metrics
from harness.report.comparison_schema import Rate, Spending, ends
from harness.report.schema import ArmSummary, FastLevel, PassPoint, ReadFile, Reading
from harness.text import clean

Get = Callable[[metrics.Score], float | None]


def arm_labels(run: RunRecord) -> dict[str, str]:
    """Arm id to a short name; names that would collide carry the arm's digest."""
    names = {digest: clean(name) for name, digest in run.lock.skills.items()}
    placebos = [arm for arm in run.config.arms if arm.kind == "placebo"]
    treatments = [arm for arm in run.config.arms if arm.kind == "with_skill"]
    paired = len(placebos) == len(treatments) > 1
    stands_for = dict(zip(placebos, treatments, strict=True)) if paired else {}
    labels: dict[str, str] = {}
    for arm in run.config.arms:
        label = f"placebo of {_label(stands_for[arm], names)}" if arm in stands_for else _label(arm, names)
        if label in labels.values():
            label = f"{label} ({arm.id.rpartition('-')[2]})"
        labels[arm.id] = label
    return labels


def _label(arm: Arm, names: Mapping[str, str]) -> str:
    label = " + ".join(names.get(digest, f"skill {digest[:8]}") for digest in arm.skills)
    plain = {"without_skill": "without skill", "placebo": "placebo", "old_skill": f"old {label}"}
    return plain.get(arm.kind, label) + (" (disclosed)" if arm.delivery == "disclosed" else "")


def rate_of(flags: Sequence[bool]) -> Rate:
    count, n = sum(flags), len(flags)
    return Rate(count=count, n=n, **ends(stats.wilson(count, n)))


def fast_levels(scores: metrics.Scores) -> Iterable[FastLevel]:
    """The fast_p curve by family."""
    for threshold in metrics.THRESHOLDS:
        means = metrics.family_means(metrics.fast_metric(threshold).values(scores))
        if means:
            share = math.fsum(means) / len(means)
            yield FastLevel(threshold=threshold, share=share, **ends(stats.share_interval(means)))


def _passes(scores: metrics.Scores, repeats: int) -> Iterable[PassPoint]:
    for k in range(1, repeats + 1):
        estimators = (stats.pass_at_k, stats.pass_hat_k)
        at, hat = (
            metrics.family_means(metrics.pass_metric(k, estimator).values(scores)) for estimator in estimators
        )
        if at:
            yield PassPoint(k=k, at=math.fsum(at) / len(at), hat=math.fsum(hat) / len(hat))


def arm_summary(
    model: str,
    arm: Arm,
    label: str,
    planned: int,
    repeats: int,
    trials: Sequence[TrialRecord],
    scores: metrics.Scores,
    *,
    built: bool,
    checked: bool,
    lean: bool = False,
) -> ArmSummary:
    """Figures of one model in one arm; built, checked: whether the run measured those stages; lean: without
    curves."""
    usage = metrics.total_usage(s.usage for s in scores)
    correct = [s for s in scores if s.correct] if checked else []
    faster = sum(1 for s in correct if s.distinguishable and (s.speedup or 0.0) > 1.0)
    slower = sum(1 for s in correct if s.distinguishable and (s.speedup or 0.0) < 1.0)
    share = stats.fast_p([s.speedup for s in scores], metrics.THRESHOLDS) if checked and scores else None
    n = len(correct)
    return ArmSummary(
        model=model,
        arm=arm.id,
        kind=arm.kind,
        label=label,
        planned=planned,
        scored=len(scores),
        infra_trials=len(trials) - len(scores),
        infra_failures=sum(len(t.failures) for t in trials),
        compiled=rate_of([bool(s.compiled) for s in scores]) if built else None,
        correct=rate_of([bool(s.correct) for s in scores]) if checked else None,
        faster=faster if checked else None,
        alike=n - faster - slower if checked else None,
        slower=slower if checked else None,
        noisy=sum(s.noisy for s in scores),
        fast_p=share,
        usage=usage,
        tokens_per_correct=usage.tokens / n if n and usage.tokens is not None else None,
        cost_usd_per_correct=usage.cost_usd / n if n and usage.cost_usd is not None else None,
        fast_levels=tuple(fast_levels(scores)) if checked and not lean else (),
        passes=tuple(_passes(scores, repeats)) if checked and not lean else (),
    )


def _lift(get: Get, treatment: metrics.Scores, control: metrics.Scores) -> stats.Lift | None:
    """Treatment minus control, by family; None where one trial of a shared task does not report it."""
    shared = {s.task for s in treatment} & {s.task for s in control}
    counted = [s for s in (*treatment, *control) if s.task in shared]
    if not counted or any(get(score) is None for score in counted):
        return None
    return stats.paired_lift(metrics.observations(metrics.by_trial(get), treatment, control), tested=False)


def arm_means(
    get: Get, treatment: metrics.Scores, control: metrics.Scores
) -> tuple[float | None, float | None]:
    """(treatment, control) means by family; None, None where one trial does not report it."""
    lift = _lift(get, treatment, control)
    return (None, None) if lift is None else (lift.mean_with, lift.mean_without)


def _price(extra: stats.Lift | None, correct: stats.Lift | None) -> stats.PairedRatio | None:
    """Extra cost per additional correct kernel; None where either is unknown or nothing is gained."""
    if extra is None or correct is None or extra.lift is None or correct.lift is None or correct.lift <= 0.0:
        return None
    spent, gained = dict(extra.per_family), dict(correct.per_family)
    found = None
    if spent.keys() == gained.keys():
        costs = [spent[family] for family in gained]
        found = stats.paired_ratio(costs, list(gained.values()), correct.confidence)
    return found or stats.PairedRatio(extra.lift / correct.lift, None, unbounded=False)


def spending(
    treatment: metrics.Scores, control: metrics.Scores, correct: stats.Lift | None, alpha: float
) -> Spending | None:
    """Treatment minus control; correct: the lift in correctness, None where it was not measured."""
    if not {s.task for s in treatment} & {s.task for s in control}:
        return None
    usage: dict[str, Get] = {
        "input_tokens": lambda s: s.usage.input_tokens,
        "output_tokens": lambda s: s.usage.output_tokens,
        "cost_usd": lambda s: s.usage.cost_usd,
        "tokens": lambda s: s.usage.tokens,
    }
    extra = {name: _lift(get, treatment, control) for name, get in usage.items()}
    gained, p_value = (None, None) if correct is None else (correct.lift, correct.p_value)
    fields: dict[str, object] = {
        "extra_correct": gained,
        "extra_correct_sure": p_value is not None and p_value <= alpha and (gained or 0.0) > 0.0,
    }
    for name in ("input_tokens", "output_tokens", "cost_usd"):
        fields[name] = lift.lift if (lift := extra[name]) else None
    prices = {name: _price(extra[name], correct) for name in ("cost_usd", "tokens")}
    fields["per_extra_correct_unbounded"] = any(price and price.unbounded for price in prices.values())
    for name, price in prices.items():
        key, interval = f"{name}_per_extra_correct", price.interval if price else None
        fields[key] = price.ratio if price else None
        fields |= {f"{key}_{end}": value for end, value in ends(interval).items()}
    return Spending.model_validate(fields)


def readings_of(
    run: RunRecord, by_arm: Mapping[tuple[str, str], Sequence[TrialRecord]]
) -> tuple[Reading, ...]:
    """What each model read in each arm with disclosed skills; nothing of an arm without a scored trial."""
    labels = arm_labels(run)
    disclosed = [arm.id for arm in run.config.arms if arm.delivery == "disclosed" and arm.skills]
    made = []
    for (model, arm), trials in by_arm.items():
        scored = [trial for trial in trials if not trial.infra and trial.grade is not None]
        if arm in disclosed and scored:
            made.append(_reading(model, arm, labels[arm], scored))
    return tuple(made)


def _reading(model: str, arm: str, label: str, scored: Sequence[TrialRecord]) -> Reading:
    read = [{f for turn in t.turns for step in turn.steps for f in step.reads} for t in scored]
    added: dict[str, list[int]] = defaultdict(list)
    for file, tokens in (found for trial in scored for turn in trial.turns for found in _added(turn)):
        added[file].append(tokens)
    asking = [[metrics.usage_of_reply(step.reply) for turn in t.turns for step in turn.steps] for t in scored]
    spent = metrics.total_usage(usage for usages in asking for usage in usages).tokens
    return Reading(
        model=model,
        arm=arm,
        label=label,
        skills=_counted([{file.partition("/")[0] for file in files} for files in read], {}),
        files=_counted(read, added),
        tokens=None if spent is None else spent / len(scored),
    )


def _added(turn: Turn) -> Iterable[tuple[str, int]]:
    """Files that were read alone in a step, each with the growth of the next prompt beyond that reply."""
    for step, following in zip(turn.steps, turn.replies[1:], strict=True):
        after, before = following.usage.input_tokens, metrics.usage_of_reply(step.reply).tokens
        if len(step.reads) != 1 or after is None or before is None:
            continue
        # Reasoning is not part of the next prompt.
        grown = after - before + (step.reply.usage.reasoning_tokens or 0)
        if grown > 0:
            yield step.reads[0], grown


def _counted(read: Sequence[set[str]], added: Mapping[str, list[int]]) -> tuple[ReadFile, ...]:
    made = []
    for name in sorted(set().union(*read)):
        trials, tokens = rate_of([name in files for files in read]), added.get(name)
        made.append(ReadFile(file=clean(name), trials=trials, tokens=median(tokens) if tokens else None))
    return tuple(sorted(made, key=lambda one: -one.trials.count))


def unread_warnings(run: RunRecord, readings: Iterable[Reading]) -> Iterable[str]:
    """Disclosed skills that no trial of a model, or fewer than half of them, ever read."""
    names = {digest: clean(name) for name, digest in run.lock.skills.items()}
    arms = {arm.id: arm for arm in run.config.arms if arm.kind in ("with_skill", "old_skill")}
    for one in readings:
        rates = {skill.file: skill.trials for skill in one.skills}
        for digest in arms[one.arm].skills if one.arm in arms else ():
            name = names.get(digest, f"skill {digest[:8]}")
            old, rate = "the old " if arms[one.arm].kind == "old_skill" else "", rates.get(name)
            who = f"of {clean(one.model)} (disclosed)"
            if rate is None:
                yield f"{old}{name} was never read in any trial {who}: its lift does not measure its content"
            elif 2 * rate.count < rate.n:
                seen = f"{old}{name} was read in {rate.count} of {rate.n} trials {who}"
                yield f"{seen}: the others saw only its description"
