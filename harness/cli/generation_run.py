"""Carries out a generation on this machine: splits, runs, checks and reports put together.

The same grounds have the same folder, so an interrupted generation goes on where it was.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from harness.builder.build import build
from harness.cli.carry_out import Way, carry_out, open_study
from harness.cli.generation_grounds import (
    Grounds,
    design_of,
    generation_digest,
    lineage_for,
    output_folder,
    refuse_unmeasured,
)
from harness.cli.progress import waiting
from harness.cli.reporting import report_run
from harness.cli.setup import cache_folder
from harness.errors import InfraError
from harness.outcome import Verdict
from harness.records import (
    BuildResult,
    Project,
    Sampling,
    Target,
    TrialRecord,
)
from harness.report.records import Summary
from harness.report.summary import summarise
from harness.report.write import write_reports
from harness.skills.check import check_skill
from harness.skills.findings import SkillFinding
from harness.skills.lineage import Lineage, LookLog, lineage_of, looks_file
from harness.skills.overlap import excluded_tasks
from harness.skills.spec import LoadedSkill, read_skill
from harness.student.prompts import task_text
from harness.study.arms import Arms
from harness.study.store import RunStore, sole_writer
from harness.study.study import Study, make_study
from harness.teaching.brief import TRACE_TOKENS, Order
from harness.teaching.generation import Generation, Job, Measured
from harness.teaching.record import GenerationRecord, MeasuredLift
from harness.teaching.splits import Split, Splits, split_tasks
from harness.teaching.teacher import Teacher
from harness.teaching.workshop import Evaluated, Workshop
from harness.text import slug

if TYPE_CHECKING:
    from harness.cli.setup import Bench
    from harness.suite.catalogue import LoadedTask

SEARCH_REPEATS: Final = 2
"""Replies per task on the development and selection splits; with one, half of a choice is luck."""
TEACHER_TOKENS: Final = 32_000
"""A skill with its references is longer than a project."""


def carry_out_generation(grounds: Grounds, bench: Bench) -> GenerationRecord:
    """Everything, from the order to the report of the test."""
    refuse_unmeasured(grounds, bench)
    old = grounds.old
    lineage = (lineage_of(old) if old is not None else None) or lineage_for(grounds)
    splits = split_tasks(grounds.tasks, lineage.seen) if grounds.students else None
    folder = grounds.runs / f"generate-{slug(grounds.description)[:40]}-{generation_digest(grounds)[:8]}"
    out = output_folder(grounds, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with sole_writer(folder):
        return _carry_out(grounds, bench, lineage, splits, folder, out)


def _carry_out(
    grounds: Grounds, bench: Bench, lineage: Lineage, splits: Splits | None, folder: Path, out: Path
) -> GenerationRecord:
    old = grounds.old
    sample = (splits.development if splits is not None else tuple(grounds.tasks))[0].task
    # Every version says so, the ones that are not kept too: what taught or chose it is no test of it.
    shown = (sample.family,) if splits is None else splits.seen
    lineage = replace(lineage, seen=tuple(sorted({*lineage.seen, *shown})))
    order = Order(
        description=grounds.description,
        target=grounds.target,
        name=grounds.output.name if grounds.output is not None and old is None else None,
        examples=grounds.examples,
        trace=_trace(grounds, splits),
        old=() if old is None else tuple(sorted(read_skill(old).documents.items())),
        sample=task_text(sample, grounds.target),
    )
    job = Job(
        order=order,
        source=None if grounds.source is None else str(grounds.source),
        old=old,
        teacher=grounds.teacher.name,
        students=tuple(spec.name for spec in grounds.students),
        metric=grounds.metric,
        splits=splits,
        rounds=grounds.rounds if old is None else max(1, grounds.rounds),
        lineage=lineage,
        looks=LookLog(looks_file()),
        with_placebo=grounds.with_placebo,
        delivery=grounds.delivery,
        design=design_of(grounds, splits),
        folder=folder,
        out=out,
        replace=grounds.replace,
    )
    sampling = Sampling(max_output_tokens=TEACHER_TOKENS)
    teacher = Teacher(grounds.teacher, sampling, folder / "teacher", waiting)
    workshop = Workshop(teacher, _checker(bench, grounds), folder / "versions", lineage)
    generation = Generation(job, workshop, lambda: grounds.meter.spent_by_role, _tell)
    _tell(f"generation {folder}")
    if splits is None:
        return generation.write_only()
    grading = Grading(grounds, splits, bench, folder / "runs")
    return generation.carry_out(grading.evaluate, grading.test)


class Grading:
    """Grades arms on a split: ordinary runs in the generation's folder."""

    def __init__(self, grounds: Grounds, splits: Splits, bench: Bench, runs: Path) -> None:
        self._grounds = grounds
        self._splits = splits
        self._way = Way(bench, grounds.models, runs, grounds.budget, grounds.connections)

    def evaluate(self, split: Split, arms: Arms) -> Evaluated:
        """All trials of these arms on a split, a few replies a task."""
        study = self._study(split, arms, SEARCH_REPEATS, 0.05)
        store = open_study(study, self._way)
        _tell(f"{split} split: {', '.join(arms.named) or 'without skill'}")
        outcome = carry_out(study, store, self._way)
        trials = _not_all_lost(store, split)
        return Evaluated(trials, outcome.stopped, _sources(store, trials))

    def test(self, arms: Arms, alpha: float, skill: LoadedSkill) -> Measured:
        """The test run, with its report."""
        old = self._grounds.old
        skills = [skill] if old is None else [skill, LoadedSkill(read_skill(old), old)]
        study = self._study("test", arms, self._grounds.repeats, alpha, skills)
        store = open_study(study, self._way)
        _tell(f"test split: {', '.join(arms.named)}")
        try:
            outcome = carry_out(study, store, self._way)
        finally:
            summary = self._report(store)
        _not_all_lost(store, "test")
        lifts = () if outcome.stopped is not None else tuple(tested_lifts(summary, self._grounds.metric))
        return Measured(str(store.folder), outcome.stopped, lifts)

    def _report(self, store: RunStore) -> Summary:
        if not self._grounds.json_output:
            return report_run(store, json_output=False)
        run = store.run()  # stdout is the record's
        summary = summarise(run, store.load(), run.lock.families)
        write_reports(store.folder, summary)
        return summary

    def _study(
        self, split: Split, arms: Arms, repeats: int, alpha: float, skills: Sequence[LoadedSkill] = ()
    ) -> Study:
        grounds = self._grounds
        tasks: tuple[LoadedTask, ...] = getattr(self._splits, split)
        return make_study(
            arms,
            tasks,
            grounds.students,
            repeats=repeats,
            target=grounds.target,
            protocol=grounds.protocol,
            sampling=grounds.sampling,
            metric=grounds.metric,
            turns=grounds.turns,
            alpha=alpha,
            leaked=excluded_tasks(skills, tasks),
        )


def tested_lifts(
    summary: Summary, metric: Literal["deployed", "correct", "compiles"]
) -> Iterator[MeasuredLift]:
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


def _trace(grounds: Grounds, splits: Splits | None) -> str | None:
    """The condensed trace; what was kept is said. Of a run: without the tasks of the other splits."""
    if grounds.source is None or grounds.old is not None:
        return None
    from harness.teaching.traces.condense import condense
    from harness.teaching.traces.reading import read_trace

    hidden = () if splits is None else (*splits.selection, *splits.test)
    trace = read_trace(grounds.source, {loaded.task.id for loaded in hidden})
    condensed = condense(trace, TRACE_TOKENS)
    _tell(f"trace {grounds.source}: {condensed.summary}")
    return condensed.text


def _checker(bench: Bench, grounds: Grounds) -> Callable[[Path], Sequence[SkillFinding]]:
    """Everything that `skills check` finds, its code built in the sandbox."""
    builds = cache_folder(grounds.cache) / "builds"

    def one(project: Project, target: Target) -> BuildResult:
        made = build(project, target, sandbox=bench.sandbox, toolchain=bench.toolchain, cache=builds)
        return made.result

    return lambda directory: check_skill(directory, build=one).findings


def _tell(text: str) -> None:
    print(text, file=sys.stderr)
