"""Entries of the board: one model with one arm of one run, and whether it may be ranked."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import yaml
from pydantic import ValidationError

from harness import stats
from harness.errors import UsageError
from harness.records import Briefing, Metric, Protocol, Record, RunRecord, Target, TrialRecord, digest_of
from harness.records.reasons import reason_of
from harness.report.comparison_schema import Bounded, Comparison, ends
from harness.report.figures import plural
from harness.report.metrics import Metric as ShownMetric
from harness.report.metrics import Score, family_means, metrics_for
from harness.report.schema import ArmSummary, FastLevel, Summary
from harness.report.summary import arm_scores, summarise
from harness.study.store import RunStore

LEAST_REPEATS: Final = 5
"""Replies per task of a ranked entry."""
AUDIT: Final = "audit.yaml"
DELISTED: Final = "delisted.json"

Level = Literal["claimed", "regraded", "reproduced"]
"""By whom: the submitter; its projects graded again by the board's owner; the model asked again too."""


class Division(Record):
    """What all rows of one table share; figures of two divisions are never compared."""

    kind: Literal["gpu", "cpu", "emulated", "built"]
    """`built`: for sm_90, and not run."""
    device: str
    target: Target
    protocol: Protocol
    briefing: Briefing
    suite: str
    """Digest over all tasks and their versions."""

    @property
    def slug(self) -> str:
        return digest_of(self.model_dump())[:8]

    @property
    def metric(self) -> Metric:
        """On which its entries are ranked and sorted."""
        chosen: dict[str, Metric] = {"emulated": "correct_emulated", "built": "compiles"}
        return chosen.get(self.kind, "deployed")

    @property
    def label(self) -> str:
        if self.kind == "gpu":
            return self.device
        words = {
            "cpu": f"CPU target on {self.device}: not a GPU",
            "emulated": "emulated GPU: correctness only, not a GPU's result",
            "built": "built for sm_90, not run",
        }
        return words[self.kind]


class Figure(Bounded):
    """A share, or a ratio for `deployed`; with its 95 % interval by family."""

    value: float


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
    tasks: int
    families: int
    repeats: int
    figures: dict[str, Figure]
    """By metric."""
    fast_p: tuple[float, ...] | None
    fast_levels: tuple[FastLevel, ...] = ()
    """The same with intervals by family."""
    comparison: Comparison | None = None
    """With the arm without a skill."""


class Audit(Record):
    """What somebody who read a cell says of it."""

    task: str
    model: str
    arm: str
    verdict: Literal["clean", "rubric_leak", "reward_hack", "interesting", "bug"]
    auditor: str
    quotes: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class BoardRun:
    """A run as the board reads it."""

    store: RunStore
    run: RunRecord
    trials: tuple[TrialRecord, ...]
    summary: Summary
    scores: Mapping[tuple[str, str], Sequence[Score]]
    audits: tuple[Audit, ...]
    delisted: str | None = None
    """Why the board took it off its ranks; its pages stay."""


def read_run(folder: Path) -> BoardRun:
    """Raises UsageError for what is no run, or a bad audit.yaml."""
    store = RunStore(folder)
    run, trials = store.run(), tuple(store.load())
    summary = summarise(run, trials, run.lock.families)
    scores, audits = arm_scores(run, trials), _audits(folder / AUDIT)
    return BoardRun(store, run, trials, summary, scores, audits, delisted(folder.parent).get(run.run_id))


def delisted(folder: Path) -> dict[str, str]:
    """Run id -> why it was taken off the ranks. Raises UsageError for a damaged file."""
    path = folder / DELISTED
    try:
        found = json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(why, str) for why in found.values()):
        raise UsageError(f"{path} must map run ids to reasons")
    return found


def _audits(path: Path) -> tuple[Audit, ...]:
    if not path.exists():
        return ()
    try:
        return tuple(Audit.model_validate(one) for one in yaml.safe_load(path.read_text()) or ())
    except (ValidationError, yaml.YAMLError, TypeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {reason_of(error)}") from None


def division_of(one: BoardRun) -> Division:
    """The table that a run's entries stand in."""
    config, machine, summary = one.run.config, one.run.lock.machine, one.summary
    measured = summary.check_gap is None and summary.build_gap is None
    kind: Literal["gpu", "cpu", "emulated", "built"]
    if config.target == "cpu":
        kind, device = "cpu", machine.cpu
    elif measured and machine.gpu is not None:
        kind, device = "gpu", machine.gpu
    else:
        emulated = any(row.emulated is not None for row in summary.trials)
        kind, device = ("emulated" if emulated else "built"), "no GPU"
    return Division(
        kind=kind,
        device=device,
        target=config.target,
        protocol=config.protocol,
        briefing=config.briefing,
        suite=digest_of(one.run.lock.tasks)[:8],
    )


def not_ranked(one: BoardRun, arm: ArmSummary) -> tuple[str, ...]:
    """Why an arm of a run is shown and not ranked: the one rule of the site, its JSON and the command."""
    config, head, division = one.run.config, one.summary.head, division_of(one)
    reasons = {
        f"delisted: {one.delisted}": one.delisted is not None,
        f"not measured on a GPU ({division.label})": division.kind != "gpu",
        "protocol quick: only full is ranked": config.protocol != "full",
        f"sandbox {config.sandbox}: it does not isolate": head.sandbox_weak,
        f"{plural(config.repeats, 'reply')} per task: a ranked entry has at least {LEAST_REPEATS}": (
            config.repeats < LEAST_REPEATS
        ),
        f"{arm.planned - arm.scored} of {arm.planned} trials are missing": arm.scored < arm.planned,
        f"{plural(arm.noisy, 'speedup')} timed on a noisy host": arm.noisy > 0,
        "audited as reward_hack": any(
            a.verdict == "reward_hack" and (a.model, a.arm) == (arm.model, arm.arm) for a in one.audits
        ),
    }
    return tuple(reason for reason, holds in reasons.items() if holds)


def entries_of(runs: Sequence[BoardRun]) -> list[Entry]:
    """All entries, each run once; those of regraded runs are its evidence, not rows of their own."""
    regraded = {one.run.regraded_from for one in runs}
    return [
        _entry(one, arm, _level(one, runs, regraded))
        for one in runs
        if one.run.regraded_from is None or one.run.regraded_from not in {r.run.run_id for r in runs}
        for arm in one.summary.arms
    ]


def _level(one: BoardRun, runs: Iterable[BoardRun], regraded: set[str | None]) -> Level:
    asked = [r for r in runs if r.run.config == one.run.config and r.run.regraded_from is None]
    live = [r for r in asked if not r.summary.replies.recorded]
    if len({r.run.run_id for r in live}) > 1:
        return "reproduced"
    return "regraded" if one.run.run_id in regraded else "claimed"


def _entry(one: BoardRun, arm: ArmSummary, level: Level) -> Entry:
    run, division = one.run, division_of(one)
    scores = one.scores[arm.model, arm.arm]
    compared = [
        c
        for c in one.summary.comparisons
        if (c.model, c.treatment, c.control) == (arm.model, arm.arm, "without_skill")
    ]
    labels = one.summary.replies.model_labels
    figures: dict[str, Figure] = {
        metric.name: figure
        for metric in metrics_for(1)
        if metric.name in ("compiles", "correct_emulated", "correct", "deployed")
        and (figure := _figure(metric, scores)) is not None
    }
    return Entry(
        id=digest_of([run.run_id, arm.model, arm.arm])[:12],
        division=division,
        run_id=run.run_id,
        created=run.created,
        model=arm.model,
        model_label=labels[0] if len(labels) == 1 else arm.model,
        arm=arm.arm,
        skill="no skill" if arm.arm == "without_skill" else arm.label,
        level=level,
        not_ranked=not_ranked(one, arm),
        tasks=len({s.task for s in scores}),
        families=len({s.family for s in scores}),
        repeats=run.config.repeats,
        figures=figures,
        fast_p=arm.fast_p,
        fast_levels=arm.fast_levels,
        comparison=compared[0] if compared else None,
    )


def _figure(metric: ShownMetric, scores: Sequence[Score]) -> Figure | None:
    """A metric of one arm; None where one trial was not measured in it."""
    values = list(metric.values(scores))
    if not values or len(values) < len(scores):
        return None
    means = family_means(values)
    if metric.unit == "share":
        return Figure(value=math.fsum(means) / len(means), **ends(stats.share_interval(means)))
    ratio = stats.log_ratio_interval(means)
    return Figure(value=ratio.value, **ends(ratio.interval))
