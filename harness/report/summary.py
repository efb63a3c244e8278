"""summarise: run and trial records to the one Summary that every report is made from.

Pure; the same records give the same Summary, in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from harness.errors import UsageError
from harness.outcome import Verdict
from harness.records import Grade, RunRecord, TrialRecord
from harness.report.arms import arm_labels, arm_summary
from harness.report.comparisons import comparisons
from harness.report.facts import (
    copied_warning,
    head_of,
    leaked_tasks,
    replies_of,
    timings_of,
    warnings_of,
)
from harness.report.matrix import matrices
from harness.report.planning import detectable
from harness.report.reading import reading, unread_warnings
from harness.report.records import ArmSummary, Gap, Progress, Reading, Summary
from harness.report.scoring import Score, gaps, score, score_after, usage_of
from harness.report.study import Study
from harness.report.trials import build_failure_groups, failure_groups, task_rows, trial_row


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


def _arms(
    run: RunRecord,
    trials: Mapping[tuple[str, str], Sequence[TrialRecord]],
    scores: Mapping[tuple[str, str], Sequence[Score]],
    build_gap: Gap | None,
    check_gap: Gap | None,
) -> dict[tuple[str, str], ArmSummary]:
    labels, repeats = arm_labels(run), run.config.repeats
    planned = (len(run.config.tasks) - len(leaked_tasks(run))) * repeats
    made: dict[tuple[str, str], ArmSummary] = {}
    for model in run.config.models:
        for arm in run.config.arms:
            key = (model.name, arm.id)
            made[key] = arm_summary(
                model.name,
                arm,
                labels[arm.id],
                planned,
                repeats,
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


def _readings(run: RunRecord, trials: Mapping[tuple[str, str], Sequence[TrialRecord]]) -> Iterable[Reading]:
    labels = arm_labels(run)
    for model in run.config.models:
        for arm in run.config.arms:
            if arm.delivery == "disclosed" and arm.skills:
                found = reading(model.name, arm.id, labels[arm.id], trials[model.name, arm.id])
                yield from [found] if found else []


def _study(
    run: RunRecord,
    by_arm: Mapping[tuple[str, str], Sequence[TrialRecord]],
    families: Mapping[str, str],
    gap: tuple[Gap | None, Gap | None],
) -> Study:
    """by_arm: without leaked tasks."""
    config = run.config
    scores = {key: [s for t in trials if (s := score(t, families))] for key, trials in by_arm.items()}
    several = range(1, config.turns + 1) if config.turns > 1 else ()
    by_turn = {
        key: [[s for t in trials if (s := score_after(t, families, turns))] for turns in several]
        for key, trials in by_arm.items()
    }
    arms = _arms(run, by_arm, scores, *gap)
    return Study(config, scores, by_turn, leaked_tasks(run), arms, *gap)


def summarise(run: RunRecord, trials: Sequence[TrialRecord], families: Mapping[str, str]) -> Summary:
    """Everything a report says about a run; families: task id to family. UsageError: a task without one."""
    config: Final = run.config
    _check_families(config.tasks, families)
    finished, unplanned = _planned(run, trials)
    grades, gap, leaked = _grades(finished), gaps(finished), leaked_tasks(run)
    by_arm: dict[tuple[str, str], list[TrialRecord]] = {
        (model.name, arm.id): [] for model in config.models for arm in config.arms
    }
    for trial in finished:
        if trial.key.task not in leaked:
            by_arm[trial.key.model, trial.key.arm].append(trial)
    study = _study(run, by_arm, families, gap)
    compared = comparisons(study)
    head = head_of(run, families, grades)
    progress, replies = _progress(run, finished, unplanned), replies_of(finished)
    readings = tuple(_readings(run, by_arm))
    rows = [trial_row(trial, families) for trial in finished]
    pairs = list(zip(rows, finished, strict=True))
    return Summary(
        head=head,
        progress=progress,
        replies=replies,
        totals=usage_of(turn for trial in finished for turn in trial.turns),
        timings=timings_of(finished, grades),
        build_gap=gap[0],
        check_gap=gap[1],
        detectable=detectable(
            config.metric, len({families[t] for t in config.tasks if t not in leaked}), config.alpha
        ),
        warnings=(
            *warnings_of(head, progress, replies, grades),
            *copied_warning(run, finished),
            *unread_warnings(run, readings),
        ),
        arms=tuple(study.summaries.values()),
        comparisons=compared,
        matrices=tuple(matrices(compared)),
        readings=readings,
        tasks=task_rows(config, families, pairs, leaked, built=not gap[0], checked=not gap[1]),
        failures=failure_groups(rows, config.arms),
        build_failures=build_failure_groups(rows, config.arms),
        trials=tuple(rows),
    )
