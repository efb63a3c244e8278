"""Carries out a generation: splits the tasks, lets the teacher write, grades every version, tests the best.

The same request has the same folder, so an interrupted generation is resumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.errors import InfraError
from harness.outcome import Verdict
from harness.records import Sampling, TrialRecord
from harness.report.records import Summary
from harness.skills.check import check_skill
from harness.skills.findings import SkillFinding
from harness.skills.lineage import LookLog, lineage_of, looks_file
from harness.skills.overlap import excluded_tasks
from harness.skills.spec import LoadedSkill, read_skill
from harness.student.prompts import task_text
from harness.study.arms import Arms
from harness.study.execute import RunContext, execute, open_study
from harness.study.store import RunStore, sole_writer
from harness.study.study import Metric, Study, make_study
from harness.suite.catalogue import LoadedTask
from harness.teaching.brief import TRACE_TOKENS, Order
from harness.teaching.generation import Generation, Job, Measured
from harness.teaching.record import GenerationRecord, MeasuredLift
from harness.teaching.request import GenerationRequest
from harness.teaching.splits import Split, Splits, split_tasks
from harness.teaching.teacher import Teacher
from harness.teaching.traces.condense import condense
from harness.teaching.traces.reading import read_trace
from harness.teaching.workshop import Evaluated, Workshop
from harness.text import slug

SEARCH_REPEATS: Final = 2
"""Replies per task on the development and selection splits; with one, half of a choice is luck."""
TEACHER_TOKENS: Final = 32_000
"""A skill with its references is longer than a project."""

Reporter = Callable[[RunStore], Summary]
"""Writes a run's reports and shows them."""


def generate(request: GenerationRequest, context: RunContext, report: Reporter) -> GenerationRecord:
    """Everything, from the request to the report of the test."""
    request.refuse_unmeasured(context.bench.grader.device_bytes)
    old = request.old
    lineage = (lineage_of(old) if old is not None else None) or request.new_lineage()
    splits = split_tasks(request.tasks, lineage.seen) if request.students else None
    folder = context.runs / f"generate-{slug(request.description)[:40]}-{request.digest[:8]}"
    out = request.output_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sample = _sample(request, splits)
    # Every version carries the families that were shown, also one that is not kept: they are no test of it.
    shown = (sample.task.family,) if splits is None else splits.seen
    lineage = replace(lineage, seen=tuple(sorted({*lineage.seen, *shown})))
    with sole_writer(folder):
        job = Job(
            order=_order(request, splits, sample, context),
            source=None if request.source is None else str(request.source),
            old=old,
            teacher=request.teacher.name,
            students=tuple(spec.name for spec in request.students),
            metric=request.metric,
            splits=splits,
            rounds=request.rounds if old is None else max(1, request.rounds),
            lineage=lineage,
            looks=LookLog(looks_file()),
            with_placebo=request.with_placebo,
            delivery=request.delivery,
            design=request.design(splits),
            folder=folder,
            out=out,
            replace=request.replace,
        )
        return _carry_out(job, request, context, report)


def _carry_out(
    job: Job, request: GenerationRequest, context: RunContext, report: Reporter
) -> GenerationRecord:
    display, bench = context.display, context.bench
    sampling = Sampling(max_output_tokens=TEACHER_TOKENS)
    teacher = Teacher(request.teacher, sampling, job.folder / "teacher", display.waiting)

    def check(directory: Path) -> Sequence[SkillFinding]:
        return check_skill(directory, build=bench.result).findings

    workshop = Workshop(teacher, check, job.folder / "versions", job.lineage)
    generation = Generation(job, workshop, lambda: request.meter.spent_by_role, display.say)
    display.say(f"generation {job.folder}")
    if job.splits is None:
        return generation.write_only()
    context = replace(context, runs=job.folder / "runs")
    grading = SplitGrading(request, job.splits, context, report)
    return generation.carry_out(grading.evaluate, grading.test)


def _sample(request: GenerationRequest, splits: Splits | None) -> LoadedTask:
    """The task that the teacher is shown."""
    return (splits.development if splits is not None else tuple(request.tasks))[0]


def _order(
    request: GenerationRequest, splits: Splits | None, sample: LoadedTask, context: RunContext
) -> Order:
    old = request.old
    return Order(
        description=request.description,
        target=request.target,
        name=request.output.name if request.output is not None and old is None else None,
        examples=request.examples,
        trace=_trace(request, splits, context.display.say),
        old=() if old is None else tuple(sorted(read_skill(old).documents.items())),
        sample=task_text(sample.task, request.target),
    )


class SplitGrading:
    """Grades arms on a split: ordinary runs in the generation's folder."""

    def __init__(
        self, request: GenerationRequest, splits: Splits, context: RunContext, report: Reporter
    ) -> None:
        self._request = request
        self._splits = splits
        self._context = context
        self._report = report

    def evaluate(self, split: Split, arms: Arms) -> Evaluated:
        """All trials of these arms on a split, a few replies per task."""
        study = self._study(split, arms, SEARCH_REPEATS, 0.05)
        store = open_study(study, self._context)
        self._context.display.say(f"{split} split: {', '.join(arms.named) or 'without skill'}")
        outcome = execute(study, store, self._context)
        trials = _not_all_lost(store, split)
        return Evaluated(trials, outcome.stopped, _sources(store, trials))

    def test(self, arms: Arms, alpha: float, skill: LoadedSkill) -> Measured:
        """The test run, with its report."""
        old = self._request.old
        skills = [skill] if old is None else [skill, LoadedSkill(read_skill(old), old)]
        study = self._study("test", arms, self._request.repeats, alpha, skills)
        store = open_study(study, self._context)
        self._context.display.say(f"test split: {', '.join(arms.named)}")
        try:
            outcome = execute(study, store, self._context)
        finally:
            summary = self._report(store)
        _not_all_lost(store, "test")
        lifts = () if outcome.stopped is not None else tuple(tested_lifts(summary, self._request.metric))
        return Measured(str(store.folder), outcome.stopped, lifts)

    def _study(
        self, split: Split, arms: Arms, repeats: int, alpha: float, skills: Sequence[LoadedSkill] = ()
    ) -> Study:
        request = self._request
        tasks: tuple[LoadedTask, ...] = getattr(self._splits, split)
        return make_study(
            arms,
            tasks,
            request.students,
            repeats=repeats,
            target=request.target,
            protocol=request.protocol,
            sampling=request.sampling,
            metric=request.metric,
            turns=request.turns,
            alpha=alpha,
            leaked=excluded_tasks(skills, tasks),
        )


def tested_lifts(summary: Summary, metric: Metric) -> Iterator[MeasuredLift]:
    """The new skill against no skill, by student."""
    controls = {arm.arm for arm in summary.arms if arm.kind == "without_skill"}
    treatments = {arm.arm for arm in summary.arms if arm.kind == "with_skill"}
    for one in summary.comparisons:
        if one.control in controls and one.treatment in treatments:
            row = one.row(metric)
            levels = [
                math.log(level) if level and row.unit == "ratio" else level
                for level in (row.control, row.treatment)
            ]
            yield MeasuredLift(
                model=one.model,
                without_skill=levels[0],
                with_skill=levels[1],
                decision=one.conclusion.decision,
            )


def _not_all_lost(store: RunStore, split: Split) -> tuple[TrialRecord, ...]:
    """The trials so far. Raises InfraError where all are lost: there is nothing to choose or teach by."""
    trials = tuple(store.load())
    if trials and all(trial.infra for trial in trials):
        why = trials[-1].failures[-1].message
        raise InfraError(
            f"nothing is scored: all {len(trials)} trials of the {split} split are lost, the last to: {why}. "
            f"The same command tries them again"
        )
    return trials


def _sources(store: RunStore, trials: Sequence[TrialRecord]) -> dict[tuple[str, str], str]:
    """Files of the projects that failed, for the teacher to see the lines at fault."""
    found = {}
    for trial in trials:
        if trial.verdict in (Verdict.CORRECT, Verdict.INFRA) or not trial.turns:
            continue
        digest = trial.turns[-1].project
        for path in sorted(store.trial_folder(trial.key).glob("**/project/**/*")):
            if digest is not None and path.is_file():
                relative = path.as_posix().rpartition("/project/")[2]
                found[digest, relative] = path.read_text(encoding="utf-8", errors="replace")
    return found


def _trace(request: GenerationRequest, splits: Splits | None, say: Callable[[str], None]) -> str | None:
    """The condensed trace. Of a run folder it leaves out the tasks of the selection and test splits."""
    if request.source is None or request.old is not None:
        return None
    hidden = () if splits is None else (*splits.selection, *splits.test)
    trace = read_trace(request.source, {loaded.task.id for loaded in hidden})
    condensed = condense(trace, TRACE_TOKENS)
    say(f"trace {request.source}: {condensed.summary}")
    return condensed.text
