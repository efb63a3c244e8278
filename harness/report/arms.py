"""One model in one arm: rates, speed split, tokens and dollars.

Tokens or dollars that one reply leaves unknown are unknown in the sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from harness import stats
from harness.records import Arm, RunRecord, TrialRecord
from harness.report.metrics import THRESHOLDS, family_means, fast_values, pass_metric
from harness.report.records import ArmSummary, FastLevel, PassPoint, Rate
from harness.report.scoring import Score, total
from harness.text import clean


def arm_labels(run: RunRecord) -> dict[str, str]:
    """Arm id to a short name for people; names that would collide carry the arm's digest."""
    names = {digest: clean(name) for name, digest in run.lock.skills.items()}
    labels: dict[str, str] = {}
    placebos = [arm for arm in run.config.arms if arm.kind == "placebo"]
    treatments = [arm for arm in run.config.arms if arm.kind == "with_skill"]
    stands_for = dict(zip(placebos, treatments, strict=False)) if len(placebos) > 1 else {}
    for arm in run.config.arms:
        label = _label(arm, names)
        if len(placebos) == len(treatments) and arm in stands_for:
            label = f"placebo of {_label(stands_for[arm], names)}"
        if label in labels.values():
            label = f"{label} ({arm.id.rpartition('-')[2]})"
        labels[arm.id] = label
    return labels


def _label(arm: Arm, names: Mapping[str, str]) -> str:
    if arm.kind == "without_skill":
        return "without skill" if arm.delivery == "body" else "without skill (disclosed)"
    if arm.kind == "placebo":
        return "placebo" if arm.delivery == "body" else "placebo (disclosed)"
    label = " + ".join(names.get(digest, f"skill {digest[:8]}") for digest in arm.skills)
    label = f"old {label}" if arm.kind == "old_skill" else label
    return f"{label} (disclosed)" if arm.delivery == "disclosed" else label


def rate_of(flags: Sequence[bool]) -> Rate:
    """How many are set, with Wilson's interval."""
    interval = stats.wilson(sum(flags), len(flags))
    return Rate(
        count=sum(flags),
        n=len(flags),
        low=interval.low if interval else None,
        high=interval.high if interval else None,
    )


def _fast_levels(scores: Sequence[Score]) -> Iterable[FastLevel]:
    for threshold in THRESHOLDS:
        means = family_means(fast_values(threshold)(scores))
        if not means:
            return
        made = stats.share_interval(means)
        low, high = (made.low, made.high) if made else (None, None)
        yield FastLevel(threshold=threshold, share=math.fsum(means) / len(means), low=low, high=high)


def _passes(scores: Sequence[Score], repeats: int) -> Iterable[PassPoint]:
    for k in range(1, repeats + 1):
        estimators = (stats.pass_at_k, stats.pass_hat_k)
        at, hat = (family_means(pass_metric(k, estimator).values(scores)) for estimator in estimators)
        if not at:
            return
        yield PassPoint(k=k, at=math.fsum(at) / len(at), hat=math.fsum(hat) / len(hat))


def arm_summary(
    model: str,
    arm: Arm,
    label: str,
    planned: int,
    repeats: int,
    trials: Sequence[TrialRecord],
    scores: Sequence[Score],
    *,
    built: bool,
    checked: bool,
) -> ArmSummary:
    """Figures of one model in one arm; built, checked: whether the run measured those stages."""
    usage = total(s.usage for s in scores)
    correct = [s for s in scores if s.correct] if checked else []
    faster = sum(1 for s in correct if s.distinguishable and (s.speedup or 0.0) > 1.0)
    slower = sum(1 for s in correct if s.distinguishable and (s.speedup or 0.0) < 1.0)
    share = stats.fast_p([s.speedup for s in scores], THRESHOLDS) if checked and scores else None
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
        fast_levels=tuple(_fast_levels(scores)) if checked else (),
        passes=tuple(_passes(scores, repeats)) if checked else (),
    )
