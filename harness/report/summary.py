"""From run and trial records to the Summary that every report is rendered from.

The result does not depend on the order of the records.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from harness import stats
from harness.errors import UsageError
from harness.outcome import Verdict
from harness.records import COPIED, Grade, GraderFacts, RunRecord, RunSettings, TrialRecord
from harness.report import schema
from harness.report.arms import arm_labels, arm_summary, readings_of, unread_warnings
from harness.report.comparisons import ScoredRun, comparisons, matrices
from harness.report.figures import plural
from harness.report.metrics import Score, emulated_gap, gaps, is_emulated, leaked_tasks, scored, usage_of
from harness.report.rows import build_failure_groups, failure_groups, task_rows, trial_row
from harness.report.study_size import detectable
from harness.text import clean

_Arm = tuple[str, str]  # model and arm
_ByArm = dict[_Arm, list[TrialRecord]]


def summarise(run: RunRecord, trials: Sequence[TrialRecord], families: Mapping[str, str]) -> schema.Summary:
    """Everything a report says about a run; families: task id to family. UsageError: a task without one."""
    return _summarise(run, trials, families, lean=False)[0]


def standing(
    run: RunRecord, trials: Sequence[TrialRecord]
) -> tuple[schema.Summary, Mapping[_Arm, Sequence[Score]]]:
    """The same without breakdowns, as a board needs it; and the scores of every model and arm."""
    summary, scored_run = _summarise(run, trials, run.lock.families, lean=True)
    return summary, scored_run.scores


def _summarise(
    run: RunRecord, trials: Sequence[TrialRecord], families: Mapping[str, str], *, lean: bool
) -> tuple[schema.Summary, ScoredRun]:
    config = run.config
    if missing := [task for task in config.tasks if task not in families]:
        raise UsageError(f"no family known for {', '.join(missing)}: give the folder that holds these tasks")
    finished, unplanned = _planned(run, trials)
    grades = [t.grade for t in finished if t.grade is not None and t.verdict is not Verdict.INFRA]
    gap, leaked, by_arm = gaps(finished), leaked_tasks(run), _by_arm(run, finished)
    scored_run = _scored_run(run, by_arm, families, gap, lean=lean)
    compared = comparisons(scored_run)
    head, progress = _head(run, families, grades), _progress(run, finished, unplanned)
    replies, readings = _replies(finished), readings_of(run, by_arm)
    rows = [trial_row(trial, families) for trial in finished]
    pairs = list(zip(rows, finished, strict=True))
    counted = [families[task] for task in config.tasks if task not in leaked]
    summary = schema.Summary(
        head=head,
        progress=progress,
        replies=replies,
        totals=usage_of(turn for trial in finished for turn in trial.turns),
        timings=_timings(finished, grades),
        build_gap=gap[0],
        check_gap=gap[1],
        detectable=detectable(config.metric, counted, config.repeats, config.alpha),
        warnings=(
            *_regraded_warning(run),
            *_warnings(head, progress, replies, grades),
            *_copied_warning(run, finished),
            *unread_warnings(run, readings),
        ),
        arms=tuple(scored_run.summaries.values()),
        comparisons=compared,
        matrices=tuple(matrices(compared)),
        readings=readings,
        tasks=()
        if lean
        else task_rows(config, families, pairs, leaked, built=not gap[0], checked=not gap[1]),
        failures=failure_groups(rows, config.arms),
        build_failures=build_failure_groups(rows, config.arms),
        trials=tuple(rows),
    )
    return summary, scored_run


def score_run(run: RunRecord, trials: Sequence[TrialRecord]) -> ScoredRun:
    """The scores of every model and arm, without tasks that a skill repeats."""
    finished, _ = _planned(run, trials)
    return _scored_run(run, _by_arm(run, finished), run.lock.families, gaps(finished))


def _by_arm(run: RunRecord, finished: Sequence[TrialRecord]) -> _ByArm:
    leaked = leaked_tasks(run)
    by_arm: _ByArm = {(model.name, arm.id): [] for model in run.config.models for arm in run.config.arms}
    for trial in finished:
        if trial.key.task not in leaked:
            by_arm[trial.key.model, trial.key.arm].append(trial)
    return by_arm


def _planned(run: RunRecord, trials: Sequence[TrialRecord]) -> tuple[list[TrialRecord], int]:
    """The planned trials, in plan order, the last record of each; and how many keys are not in the plan."""
    config = run.config
    axes = [list(config.tasks), [m.name for m in config.models], [a.id for a in config.arms]]
    latest = {(t.key.task, t.key.model, t.key.arm, t.key.repeat): t for t in trials}
    known = {k: t for k, t in latest.items() if k[0] in axes[0] and k[1] in axes[1] and k[2] in axes[2]}
    order = sorted(known, key=lambda k: (axes[1].index(k[1]), axes[0].index(k[0]), axes[2].index(k[2]), k[3]))
    return [known[key] for key in order], len(latest) - len(known)


def _scored_run(
    run: RunRecord,
    by_arm: _ByArm,
    families: Mapping[str, str],
    gap: tuple[schema.Gap | None, schema.Gap | None],
    *,
    lean: bool = False,
) -> ScoredRun:
    config, labels, leaked = run.config, arm_labels(run), leaked_tasks(run)
    turns = range(1, config.turns + 1) if config.turns > 1 else ()
    scores = {key: scored(trials, families) for key, trials in by_arm.items()}
    by_turn = {key: [scored(trials, families, n) for n in turns] for key, trials in by_arm.items()}
    planned = (len(config.tasks) - len(leaked)) * config.repeats
    built, checked = gap[0] is None, gap[1] is None
    summaries = {
        (model, arm.id): arm_summary(
            *(model, arm, labels[arm.id], planned, config.repeats),
            *(by_arm[model, arm.id], scores[model, arm.id]),
            built=built,
            checked=checked,
            lean=lean,
        )
        for model in dict.fromkeys(model for model, _ in by_arm)
        for arm in config.arms
    }
    finished = [trial for trials in by_arm.values() for trial in trials]
    emulation = is_emulated(finished), emulated_gap(finished)
    return ScoredRun(config, scores, by_turn, leaked, summaries, *gap, *emulation, lean)


def _progress(run: RunRecord, trials: Sequence[TrialRecord], unplanned: int) -> schema.Progress:
    config = run.config
    planned = len(config.tasks) * len(config.arms) * len(config.models) * config.repeats
    lost = sum(t.verdict is Verdict.INFRA for t in trials)
    return schema.Progress(
        planned=planned,
        finished=len(trials),
        scored=len(trials) - lost,
        owed=max(0, planned - len(trials)),
        infra_trials=lost,
        infra_failures=sum(len(t.failures) for t in trials),
        unplanned=unplanned,
    )


def _head(run: RunRecord, families: Mapping[str, str], grades: Sequence[Grade]) -> schema.Head:
    config, lock, leaked = run.config, run.lock, leaked_tasks(run)
    skills = {clean(name): digest for name, digest in lock.skills.items()}
    facts: dict[str, set[str]] = defaultdict(set)
    for grade in grades:
        for name, value in grade.sandbox_facts.items():
            facts[clean(name)].add(clean(value))
    shared = {name: getattr(config, name) for name in RunSettings.model_fields}
    shared |= {name: getattr(lock, name) for name in GraderFacts.model_fields}
    return schema.Head(
        **shared,
        run_id=clean(run.run_id),
        created=clean(run.created),
        sandbox_facts={name: " | ".join(sorted(values)) for name, values in sorted(facts.items())},
        sandbox_weak="local" in {config.sandbox, *(g.sandbox for g in grades)},
        device=_device(run, grades),
        models=tuple(m.name for m in config.models),
        skills=tuple(schema.NamedDigest(name=name, digest=skills[name]) for name in sorted(skills)),
        tasks=tuple(schema.NamedDigest(name=t, digest=lock.tasks.get(t, "")) for t in config.tasks),
        families=tuple(sorted({families[t] for t in config.tasks})),
        leaked=tuple(schema.Leak(task=clean(t), where=clean(w)) for t, w in sorted(leaked.items())),
    )


def _device(run: RunRecord, grades: Sequence[Grade]) -> str:
    machine = run.lock.machine
    if run.config.target == "cpu":
        return f"cpu ({clean(machine.cpu)})"
    built = sorted({arch for g in grades if g.build for arch in g.build.architectures}) or ["sm_90"]
    return f"{', '.join(built)} ({clean(machine.gpu) if machine.gpu else 'no GPU on this machine'})"


def _replies(trials: Iterable[TrialRecord]) -> schema.Replies:
    replies = [reply for trial in trials for turn in trial.turns for reply in turn.replies]
    dates = sorted(clean(reply.created) for reply in replies)
    return schema.Replies(
        recorded=sum(reply.recorded for reply in replies),
        live=sum(not reply.recorded for reply in replies),
        model_labels=tuple(sorted({clean(reply.model_label) for reply in replies})),
        first=dates[0] if dates else None,
        last=dates[-1] if dates else None,
    )


def _quartiles(values: Sequence[float]) -> schema.Quartiles | None:
    if not values:
        return None
    middle, first, third = stats.median_iqr(values)
    return schema.Quartiles(n=len(values), total_s=math.fsum(values), median_s=middle, q1_s=first, q3_s=third)


def _timings(trials: Sequence[TrialRecord], grades: Sequence[Grade]) -> schema.Timings:
    builds = [g.build for g in grades if g.build is not None]
    latencies = [reply.latency_s for trial in trials for turn in trial.turns for reply in turn.replies]
    return schema.Timings(
        reply=_quartiles([s for s in latencies if s is not None]),
        build=_quartiles([b.wall_s for b in builds if not b.cache_hit]),
        compiler=_quartiles([b.compiler_s for b in builds if b.compiler_s is not None]),
        grade=_quartiles([g.wall_s for g in grades]),
        cache_hits=sum(b.cache_hit for b in builds),
        builds=len(builds),
    )


def _warnings(
    head: schema.Head, progress: schema.Progress, replies: schema.Replies, grades: Sequence[Grade]
) -> Iterable[str]:
    """What weakens the run as a whole."""
    if head.sandbox_weak:
        yield "sandbox local: student code ran with little isolation; for trusted replies only, never ranked"
    others = {g.sandbox for g in grades} - {head.sandbox}
    if others - {"local"}:
        yield f"some trials were graded in another sandbox: {', '.join(sorted(others))}"
    machines = {g.machine for g in grades}
    if len(machines) > 1:
        yield f"graded on {len(machines)} different machines: speedups are not comparable"
    if replies.recorded:
        labels = ", ".join(replies.model_labels)
        dates = " to ".join(sorted({day[:10] for day in (replies.first, replies.last) if day}))
        yield f"{plural(replies.recorded, 'recorded reply')} of {labels} ({dates}): replayed, not new"
    if progress.unplanned:
        yield f"{plural(progress.unplanned, 'trial')} excluded: not in this run's plan"
    if borrowing := sum(bool(g.flags_of_work) for g in grades):
        yield f"{plural(borrowing, 'trial')} flagged for what the built library calls"
    flagged = [flag for g in grades if g.timing for flag in g.timing.flags]
    if mismatched := flagged.count("clock_mismatch"):
        yield f"{plural(mismatched, 'trial')} with clock_mismatch: scored by the slower clock"


def _regraded_warning(run: RunRecord) -> Iterable[str]:
    if run.regraded_from is not None:
        yield f"the replies of {clean(run.regraded_from)}, graded again: no model was asked"


def _copied_warning(run: RunRecord, trials: Iterable[TrialRecord]) -> Iterable[str]:
    """How many correct projects of each arm are copies of kernels_ref; nothing where none is."""
    correct: dict[str, list[bool]] = {arm.id: [] for arm in run.config.arms}
    for trial in trials:
        if trial.grade is not None and trial.verdict is Verdict.CORRECT:
            correct[trial.key.arm].append(trial.grade.copied)
    if any(map(any, correct.values())):
        labels = arm_labels(run)
        counts = (f"{labels[arm]} {sum(found)} of {len(found)}" for arm, found in correct.items())
        yield f"{COPIED}, of the correct trials: {', '.join(counts)}"
