"""Entries of the board: one model with one arm of one run, and whether it may be ranked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from harness import stats
from harness.board.levels import Level, level_of
from harness.board.runs import BoardRun, Division, Figure, Suite, foreign_tasks
from harness.records import Record, digest_of
from harness.report.comparison_schema import Comparison
from harness.report.figures import plural
from harness.report.metrics import THRESHOLDS, Score, family_means, fast_metric, leaked_tasks
from harness.report.schema import ArmSummary

LEAST_REPEATS: Final = 5
"""Replies per task of a ranked entry."""


class BothRules(Record):
    """Share correct and faster than a threshold on KernelBench's problems, over the same trials."""

    threshold: float
    theirs: float
    """Plain mean over trials by KernelBench's rules, over eager, times as claimed."""
    ours: float


class Entry(Record):
    """One row."""

    id: str
    division: Division
    run_id: str
    created: str
    model: str
    model_label: str
    arm: str
    skill: str
    """`no skill` in the control arm."""
    level: Level
    not_ranked: tuple[str, ...]
    """Every reason; empty where it may be ranked."""
    off: bool
    """Delisted or a reward hack: it stands last, and among no kernels."""
    tasks: int
    families: int
    repeats: int
    figures: dict[str, Figure]
    """By metric."""
    fast_p: tuple[float, ...] | None
    kernelbench: tuple[BothRules, ...] = ()
    comparison: Comparison | None = None
    """With the arm without a skill."""


def not_ranked(one: BoardRun, arm: ArmSummary, suite: Suite | None = None) -> tuple[str, ...]:
    """Why an arm of a run is shown and not ranked: the one rule of the site, its JSON and the command."""
    config, head = one.run.config, one.summary.head
    left_out, foreign = leaked_tasks(one.run), foreign_tasks(one.run, suite)
    reasons = {
        **dict.fromkeys(_off(one, arm), True),
        **dict.fromkeys(one.division.not_ranked, True),
        f"sandbox {config.sandbox}: it does not isolate": head.sandbox_weak,
        f"{plural(config.repeats, 'reply')} per task: a ranked entry has at least {LEAST_REPEATS}": (
            config.repeats < LEAST_REPEATS
        ),
        f"{arm.planned - arm.scored} of {arm.planned} trials are missing": arm.scored < arm.planned,
        f"{plural(one.repeated, 'trial')} scored more than once": one.repeated > 0,
        f"{plural(arm.noisy, 'speedup')} timed on a noisy host": arm.noisy > 0,
        f"{plural(len(left_out), 'task')} left out, as a skill is said to hold the solution": bool(left_out),
        f"{plural(len(foreign), 'task')} not as in the board's suite": bool(foreign),
    }
    return tuple(reason for reason, holds in reasons.items() if holds)


def _off(one: BoardRun, arm: ArmSummary) -> Iterator[str]:
    """Why the board took an entry off."""
    if one.delisted is not None:
        yield f"delisted: {one.delisted}"
    if any(a.verdict == "reward_hack" and (a.model, a.arm) == (arm.model, arm.arm) for a in one.audits):
        yield "audited as reward_hack"


def entries_of(one: BoardRun, own: Sequence[BoardRun] = (), suite: Suite | None = None) -> list[Entry]:
    """One for each model and arm. `own`: runs of the board's owner, which raise levels."""
    return [_entry(one, arm, own, suite) for arm in one.summary.arms]


def _entry(one: BoardRun, arm: ArmSummary, own: Sequence[BoardRun], suite: Suite | None) -> Entry:
    run, scores = one.run, one.scores[arm.model, arm.arm]
    compared = [
        c
        for c in one.summary.comparisons
        if (c.model, c.treatment, c.control) == (arm.model, arm.arm, "without_skill")
    ]
    labels = one.summary.replies.model_labels
    return Entry(
        id=digest_of([run.run_id, arm.model, arm.arm])[:12],
        division=one.division,
        run_id=run.run_id,
        created=run.created,
        model=arm.model,
        model_label=labels[0] if len(labels) == 1 else arm.model,
        arm=arm.arm,
        skill="no skill" if arm.arm == "without_skill" else arm.label,
        level=level_of(one, arm.model, arm.arm, own),
        not_ranked=not_ranked(one, arm, suite),
        off=any(_off(one, arm)),
        tasks=len({s.task for s in scores}),
        families=len({s.family for s in scores}),
        repeats=run.config.repeats,
        figures=one.figures(arm.model, arm.arm),
        fast_p=arm.fast_p,
        kernelbench=tuple(_both_rules(scores)),
        comparison=compared[0] if compared else None,
    )


def _both_rules(scores: Sequence[Score]) -> Iterator[BothRules]:
    """Nothing without KernelBench's problems."""
    theirs = [score for score in scores if score.kernelbench is not None]
    shares = stats.fast_p([score.kernelbench or None for score in theirs], THRESHOLDS) if theirs else ()
    for threshold, share in zip(THRESHOLDS if theirs else (), shares, strict=True):
        means = family_means(fast_metric(threshold).values(theirs))
        yield BothRules(threshold=threshold, theirs=share, ours=math.fsum(means) / len(means))
