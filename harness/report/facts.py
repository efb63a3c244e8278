"""The facts of a run: its head, where replies came from, where the time went, and what weakens it.

Names that a user or provider chose are cleaned here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from harness import stats
from harness.outcome import Verdict
from harness.records import Grade, RunRecord, TrialRecord
from harness.records.project import COPIED
from harness.report.arms import arm_labels
from harness.report.figures import plural
from harness.report.records import Head, Leak, NamedDigest, Progress, Quartiles, Replies, Timings
from harness.text import clean

_MACHINES_SHOWN: Final = 3


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


def leaked_tasks(run: RunRecord) -> dict[str, str]:
    """Planned tasks whose reference a skill repeats, and where."""
    return {task: run.lock.leaked[task] for task in run.config.tasks if task in run.lock.leaked}


def head_of(run: RunRecord, families: Mapping[str, str], grades: Sequence[Grade]) -> Head:
    """What was measured, where, and with what."""
    leaked = leaked_tasks(run)
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
        alpha=config.alpha,
        leaked=tuple(Leak(task=clean(t), where=clean(w)) for t, w in sorted(leaked.items())),
    )


def replies_of(trials: Iterable[TrialRecord]) -> Replies:
    """Where the replies came from, those that only asked for files too."""
    replies = [reply for trial in trials for turn in trial.turns for reply in turn.replies]
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


def timings_of(trials: Sequence[TrialRecord], grades: Sequence[Grade]) -> Timings:
    """What the run's time went into."""
    builds = [g.build for g in grades if g.build is not None]
    latencies = [reply.latency_s for trial in trials for turn in trial.turns for reply in turn.replies]
    return Timings(
        reply=_quartiles([s for s in latencies if s is not None]),
        build=_quartiles([b.wall_s for b in builds if not b.cache_hit]),
        compiler=_quartiles([b.compiler_s for b in builds if b.compiler_s is not None]),
        grade=_quartiles([g.wall_s for g in grades]),
        cache_hits=sum(b.cache_hit for b in builds),
        builds=len(builds),
    )


def warnings_of(head: Head, progress: Progress, replies: Replies, grades: Sequence[Grade]) -> Iterable[str]:
    """What weakens the run as a whole."""
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
    if borrowing := sum(bool(g.flags_of_work) for g in grades):
        yield f"{plural(borrowing, 'trial')} flagged for what the built library calls"
    flagged = [flag for g in grades if g.timing for flag in g.timing.flags]
    if mismatched := flagged.count("clock_mismatch"):
        yield f"{plural(mismatched, 'trial')} with clock_mismatch: scored by the slower clock"


def copied_warning(run: RunRecord, trials: Iterable[TrialRecord]) -> Iterable[str]:
    """How many correct projects of each arm stand in kernels_ref already; nothing where none does."""
    correct: dict[str, list[bool]] = {arm.id: [] for arm in run.config.arms}
    for trial in trials:
        if trial.grade is not None and trial.verdict is Verdict.CORRECT:
            correct[trial.key.arm].append(trial.grade.copied)
    if any(map(any, correct.values())):
        labels = arm_labels(run)
        told = (f"{labels[arm]} {sum(found)} of {len(found)}" for arm, found in correct.items())
        yield f"{COPIED}, of the correct trials: {', '.join(told)}"
