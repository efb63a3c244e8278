"""summarise: run and trial records to the one Summary that every report is made from.

Owns: the plan (what is owed), the head, warnings, and putting the parts together. Does not own:
scoring, lifts, tables (their own modules) or reading a run folder (store.py). Invariant: pure; the
same records give the same Summary, in whatever order they come.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from harness import stats
from harness.errors import UsageError
from harness.outcome import Verdict
from harness.records import Grade, RunRecord, TrialRecord
from harness.report.arms import arm_labels, arm_summary
from harness.report.clean import clean
from harness.report.comparisons import Study, comparisons
from harness.report.figures import plural
from harness.report.records import (
    ArmSummary,
    Detectable,
    Gap,
    Head,
    NamedDigest,
    Progress,
    Quartiles,
    Replies,
    Summary,
    Timings,
)
from harness.report.scoring import Score, gaps, score, usage_of
from harness.report.trials import build_failure_groups, failure_groups, task_rows, trial_row

_SD: Final = {"deployed": 0.5, "correct": 0.3, "compiles": 0.3}
"""Assumed sd between families: 0.5 of the log ratio (protocols.md, Lift study); 0.3 of a share [own]."""
_MACHINES_SHOWN: Final = 3


def _planned(run: RunRecord, trials: Sequence[TrialRecord]) -> tuple[list[TrialRecord], int]:
    """The planned trials, in plan order, the last record of each; and how many keys are not in the plan."""
    config = run.config
    axes = [list(config.tasks), [m.name for m in config.models], [a.id for a in config.arms]]
    latest = {(t.key.task, t.key.model, t.key.arm, t.key.repeat): t for t in trials}
    known = {k: t for k, t in latest.items() if k[0] in axes[0] and k[1] in axes[1] and k[2] in axes[2]}
    order = sorted(known, key=lambda k: (axes[1].index(k[1]), axes[0].index(k[0]), axes[2].index(k[2]), k[3]))
    return [known[key] for key in order], len(latest) - len(known)


def _grades(trials: Iterable[TrialRecord]) -> list[Grade]:
    return [t.grade for t in trials if t.grade is not None and t.verdict is not Verdict.INFRA]


def _device(run: RunRecord, grades: Sequence[Grade]) -> str:
    machine = run.lock.machine
    if run.config.target == "cpu":
        return f"cpu ({clean(machine.cpu)})"
    built = sorted({arch for g in grades if g.build for arch in g.build.architectures}) or ["sm_90"]
    return f"{', '.join(built)} ({clean(machine.gpu) if machine.gpu else 'no GPU on this machine'})"


def _facts(grades: Iterable[Grade]) -> dict[str, str]:
    """Sandbox facts of all grades; where grades differ, every value."""
    seen: dict[str, set[str]] = defaultdict(set)
    for grade in grades:
        for name, value in grade.sandbox_facts.items():
            seen[clean(name)].add(clean(value))
    return {name: " | ".join(sorted(values)) for name, values in sorted(seen.items())}


def _head(run: RunRecord, families: Mapping[str, str], grades: Sequence[Grade]) -> Head:
    config, lock = run.config, run.lock
    skills = {clean(name): digest for name, digest in lock.skills.items()}
    return Head(
        run_id=clean(run.run_id),
        created=clean(run.created),
        target=config.target,
        protocol=config.protocol,
        metric=config.metric,
        sandbox=config.sandbox,
        sandbox_facts=_facts(grades),
        sandbox_weak="local" in {config.sandbox, *(g.sandbox for g in grades)},
        machine=lock.machine,
        device=_device(run, grades),
        grader_version=lock.grader_version,
        image=lock.image,
        models=tuple(m.name for m in config.models),
        skills=tuple(NamedDigest(name=name, digest=skills[name]) for name in sorted(skills)),
        tasks=tuple(NamedDigest(name=t, digest=lock.tasks.get(t, "")) for t in config.tasks),
        families=tuple(sorted({families[t] for t in config.tasks})),
        repeats=config.repeats,
        turns=config.turns,
        sampling=config.sampling,
        seed=config.seed,
    )


def _replies(trials: Iterable[TrialRecord]) -> Replies:
    replies = [turn.reply for trial in trials for turn in trial.turns]
    dates = sorted(clean(reply.created) for reply in replies)
    return Replies(
        recorded=sum(reply.recorded for reply in replies),
        live=sum(not reply.recorded for reply in replies),
        model_labels=tuple(sorted({clean(reply.model_label) for reply in replies})),
        first=dates[0] if dates else None,
        last=dates[-1] if dates else None,
    )


def _quartiles(values: Sequence[float]) -> Quartiles | None:
    if not values:
        return None
    middle, first, third = stats.median_iqr(values)
    return Quartiles(n=len(values), total_s=math.fsum(values), median_s=middle, q1_s=first, q3_s=third)


def _timings(trials: Sequence[TrialRecord], grades: Sequence[Grade]) -> Timings:
    builds = [g.build for g in grades if g.build is not None]
    latencies = [turn.reply.latency_s for trial in trials for turn in trial.turns]
    return Timings(
        reply=_quartiles([s for s in latencies if s is not None]),
        build=_quartiles([b.wall_s for b in builds if not b.cache_hit]),
        compiler=_quartiles([b.compiler_s for b in builds if b.compiler_s is not None]),
        grade=_quartiles([g.wall_s for g in grades]),
        cache_hits=sum(b.cache_hit for b in builds),
        builds=len(builds),
    )


def detectable(metric: str, n_families: int) -> Detectable:
    """What a study of so many families can detect on its primary metric, from its plan alone."""
    sd, ratio_unit = _SD[metric], metric == "deployed"
    plan = (
        f"{plural(n_families, 'family')} (assumed sd {sd:g} of the {'log ratio' if ratio_unit else 'share'})"
    )
    if n_families < 2:
        statement = f"With {plan} nothing can be inferred: at least 2 families are needed."
        return Detectable(n_families=n_families, sd=sd, effect=None, statement=statement)
    effect = stats.minimum_detectable_ratio(sd, n_families)
    if not ratio_unit:  # the same formula before exp; no share differs by more than 1
        effect = math.log(effect)
    text = f"x{effect:.2f}" if ratio_unit else f"{100 * effect:.0f} points"
    statement = f"With {plan} a true lift in {metric} of {text} is detected with 80% power."
    if not ratio_unit and effect > 1.0:
        statement = f"With {plan} no lift in {metric} is detected with 80% power."
    return Detectable(n_families=n_families, sd=sd, effect=effect, statement=statement)


def _warnings(head: Head, progress: Progress, replies: Replies, grades: Sequence[Grade]) -> Iterable[str]:
    if head.sandbox_weak:
        yield "sandbox local: student code ran with little isolation; for trusted replies only, never ranked"
    others = {g.sandbox for g in grades} - {head.sandbox}
    if others - {"local"}:
        yield f"some trials were graded in another sandbox: {', '.join(sorted(others))}"
    machines = sorted({g.machine for g in grades})
    if len(machines) > 1:
        shown = ", ".join(machines[:_MACHINES_SHOWN])
        yield f"graded on {len(machines)} different machines ({shown}): speedups are not comparable"
    if replies.recorded:
        whose = ", ".join(replies.model_labels)
        dates = " to ".join(sorted({day[:10] for day in (replies.first, replies.last) if day}))
        yield f"{plural(replies.recorded, 'recorded reply')} of {whose} ({dates}): replayed, not asked now"
    if progress.unplanned:
        yield f"{plural(progress.unplanned, 'trial')} not in this run's plan left out"
    if borrowing := sum(bool(g.flags) for g in grades):
        yield f"{plural(borrowing, 'trial')} flagged for what the built library calls"
    flagged = [flag for g in grades if g.timing for flag in g.timing.flags]
    if mismatched := flagged.count("clock_mismatch"):
        yield f"{plural(mismatched, 'trial')} with clock_mismatch: scored by the slower clock"


def _arms(
    run: RunRecord,
    trials: Mapping[tuple[str, str], Sequence[TrialRecord]],
    scores: Mapping[tuple[str, str], Sequence[Score]],
    build_gap: Gap | None,
    check_gap: Gap | None,
) -> dict[tuple[str, str], ArmSummary]:
    labels, planned = arm_labels(run), len(run.config.tasks) * run.config.repeats
    made: dict[tuple[str, str], ArmSummary] = {}
    for model in run.config.models:
        for arm in run.config.arms:
            key = (model.name, arm.id)
            made[key] = arm_summary(
                model.name,
                arm,
                labels[arm.id],
                planned,
                trials[key],
                scores[key],
                built=build_gap is None,
                checked=check_gap is None,
            )
    return made


def _progress(run: RunRecord, trials: Sequence[TrialRecord], unplanned: int) -> Progress:
    config = run.config
    planned = len(config.tasks) * len(config.arms) * len(config.models) * config.repeats
    lost = sum(t.verdict is Verdict.INFRA for t in trials)
    return Progress(
        planned=planned,
        finished=len(trials),
        scored=len(trials) - lost,
        owed=max(0, planned - len(trials)),
        infra_trials=lost,
        infra_failures=sum(len(t.failures) for t in trials),
        unplanned=unplanned,
    )


def _check_families(tasks: Iterable[str], families: Mapping[str, str]) -> None:
    missing = [task for task in tasks if task not in families]
    if missing:
        raise UsageError(f"no family known for {', '.join(missing)}: give the folder that holds these tasks")


def summarise(run: RunRecord, trials: Sequence[TrialRecord], families: Mapping[str, str]) -> Summary:
    """Everything a report says about a run; families: task id to family. UsageError: a task without one."""
    config: Final = run.config
    _check_families(config.tasks, families)
    finished, unplanned = _planned(run, trials)
    grades = _grades(finished)
    build_gap, check_gap = gaps(finished)
    keys = [(model.name, arm.id) for model in config.models for arm in config.arms]
    by_arm: dict[tuple[str, str], list[TrialRecord]] = {key: [] for key in keys}
    scores: dict[tuple[str, str], list[Score]] = {key: [] for key in keys}
    for trial in finished:
        key = (trial.key.model, trial.key.arm)
        by_arm[key].append(trial)
        if scored := score(trial, families):
            scores[key].append(scored)
    head = _head(run, families, grades)
    progress, replies = _progress(run, finished, unplanned), _replies(finished)
    arms = _arms(run, by_arm, scores, build_gap, check_gap)
    rows = [trial_row(trial, families) for trial in finished]
    pairs = list(zip(rows, finished, strict=True))
    return Summary(
        head=head,
        progress=progress,
        replies=replies,
        totals=usage_of(turn for trial in finished for turn in trial.turns),
        timings=_timings(finished, grades),
        build_gap=build_gap,
        check_gap=check_gap,
        detectable=detectable(config.metric, len(head.families)),
        warnings=tuple(_warnings(head, progress, replies, grades)),
        arms=tuple(arms.values()),
        comparisons=comparisons(Study(config, scores, arms, build_gap, check_gap)),
        tasks=task_rows(
            config.tasks,
            config.models,
            config.arms,
            families,
            pairs,
            built=not build_gap,
            checked=not check_gap,
        ),
        failures=failure_groups(rows, config.arms),
        build_failures=build_failure_groups(rows, config.arms),
        trials=tuple(rows),
    )
