"""One generation, from a request to a written skill and its test. The same request resumes it.

The test split is looked at once, after the last choice; the look is logged before any of its trials.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from harness.cases.importing import FILES
from harness.errors import BudgetSpent, InfraError, ProviderError, UsageError
from harness.files import write_atomically
from harness.models.meter import Spent
from harness.records import Metric, Sampling, Task, TrialRecord, utc_now
from harness.report.schema import Summary
from harness.skills.check import check_skill
from harness.skills.lineage import ALPHA, SHORT_KEY, Look, LookLog, lineage_of, look_at, looks_file
from harness.skills.overlap import excluded_tasks
from harness.skills.spec import LoadedSkill, SkillFinding, read_skill
from harness.skills.write_skill import derive
from harness.stats import fewest_families
from harness.student.prompts import task_text
from harness.study.run import RunContext, execute, open_run
from harness.study.store import RunStore, sole_writer
from harness.study.study import Arms, Study, make_arms
from harness.teaching.brief import TRACE_TOKENS, Order
from harness.teaching.case_writing import CASES_FILE, write_cases
from harness.teaching.record import FILE_NAME, GenerationRecord, MeasuredLift, read_record, wrote
from harness.teaching.request import SPLITS, GenerationRequest, Split, Splits, split_tasks
from harness.teaching.search import Evaluate, Search
from harness.teaching.traces.condense import condense
from harness.teaching.traces.reading import read_trace
from harness.teaching.workshop import Evaluated, Teacher, Version, Workshop
from harness.text import slug

TEACHER_TOKENS: Final = 32_000
"""Output limit: a skill with its references is longer than a project."""

SEARCH_REPEATS: Final = 2
"""Replies per task on the development and selection splits; with one, half of a choice is luck."""

Reporter = Callable[[RunStore], Summary]

Say = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """How the test run ended."""

    folder: str
    stopped: str | None
    lifts: tuple[MeasuredLift, ...] = ()


MeasureLift = Callable[[Arms, float, LoadedSkill], Measured]
"""Carries out and reports the test run of these arms, at alpha, with the new skill."""


def generate(request: GenerationRequest, context: RunContext, report: Reporter) -> GenerationRecord:
    """Everything, from the request to the report of the test."""
    request.refuse_unmeasured(context.setup.grader.device_bytes)
    old, display, setup = request.old, context.display, context.setup
    lineage = (lineage_of(old) if old is not None else None) or request.new_lineage()
    splits = split_tasks(request.tasks, lineage.seen) if request.students else None
    folder = context.runs / f"generate-{slug(request.description)[:40]}-{request.digest[:8]}"
    out = request.output_folder(folder)
    sample = (request.tasks if splits is None else splits.development)[0].task
    shown = (sample.family,) if splits is None else splits.seen
    folder.mkdir(parents=True, exist_ok=True)

    def check(directory: Path) -> Sequence[SkillFinding]:
        return check_skill(directory, build=setup.result).findings

    with sole_writer(folder):
        order = _order(request, sample, display.say)
        sampling = Sampling(max_output_tokens=TEACHER_TOKENS)
        teacher = Teacher(request.teacher, sampling, folder / "teacher", display.waiting)
        lineage = replace(lineage, seen=tuple(sorted({*lineage.seen, *shown})))
        workshop = Workshop(teacher, check, folder / "versions", lineage)
        looks = LookLog(looks_file())
        generation = Generation(request, order, splits, folder, out, workshop, looks, display.say)
        display.say(f"generation {folder}")
        if splits is None:
            return generation.write_only()
        grading = SplitGrading(request, splits, replace(context, runs=folder / "runs"), report)
        return generation.search_and_test(grading.evaluate, grading.test)


def _order(request: GenerationRequest, sample: Task, say: Say) -> Order:
    """What the teacher is asked for; a trace is read and condensed."""
    old, output, trace = request.old, request.output, None
    if request.source is not None and old is None:
        condensed = condense(read_trace(request.source), TRACE_TOKENS)
        say(f"trace {request.source}: {condensed.summary}")
        trace = condensed.text
    return Order(
        description=request.description,
        target=request.target,
        briefing=request.briefing,
        name=output.name if output is not None and old is None else None,
        examples=request.examples,
        trace=trace,
        old=() if old is None else tuple(sorted(read_skill(old).documents.items())),
        sample=task_text(sample, request.target, request.briefing),
    )


@dataclass
class Generation:
    """A generation being carried out, and its record."""

    request: GenerationRequest
    order: Order
    splits: Splits | None
    folder: Path
    """The generation's own."""
    out: Path
    """The skill is written below it."""
    workshop: Workshop
    looks: LookLog
    say: Say

    def __post_init__(self) -> None:
        request, splits, known = self.request, self.splits, read_record(self.folder)
        self._spent_before = {} if known is None else known.spent
        self.record = GenerationRecord(
            created=utc_now(),
            description=request.description,
            source=None if request.source is None else str(request.source),
            teacher=request.teacher.name,
            students=tuple(spec.name for spec in request.students),
            target=request.target,
            briefing=request.briefing,
            metric=request.metric,
            families={} if splits is None else {name: splits.families(name) for name in SPLITS},
            lineage=self.workshop.lineage.id,
            written=None if known is None else known.written,
            written_digest=None if known is None else known.written_digest,
        )

    def write_only(self) -> GenerationRecord:
        """Write a skill and measure nothing."""
        old = self.request.old
        parent = None if old is None else self.workshop.adopt(old)
        version = self.workshop.first(self.order, parent)
        candidates = (version.record(self.folder),)
        self._keep(candidates=candidates, chosen=version.index, why="not evaluated")
        cases = self._cases(version)
        self._deliver(self._derived(version, {}, cases) if cases else version.folder)
        return self.record

    def search_and_test(self, evaluate: Evaluate, test: MeasureLift) -> GenerationRecord:
        """Search, write the best version, and test it."""
        found = self._search(evaluate)
        version, why = _choice(found, self.request.old is not None)
        self._keep(
            candidates=tuple(v.record(self.folder) for v in found.versions),
            without_skill=found.without_skill,
            chosen=version.index,
            why=why,
            stopped=found.stopped,
        )
        self.say(why)
        old = None if self.request.old is None else found.versions[0]
        if version is old:
            return self.record  # nothing better to write, and nothing new to test
        design = self.request.design(self.splits)
        look = look_at(self.looks, self.workshop.lineage, version.skill.digest, design, self.record.created)
        if found.stopped is not None:
            self._deliver(self._marked(version, look.number - 1))
            return self.record
        final = self._marked(version, look.number, self._cases(version))
        self._deliver(final)
        self._warn_of_few_families(look)
        self.looks.add(look)
        self._keep(look=look)
        new = read_skill(final)
        arms = make_arms(
            [new],
            with_placebo=self.request.with_placebo,
            old=None if old is None else old.skill,
            delivery=self.request.delivery,
        )
        done = test(arms, look.alpha, LoadedSkill(new, final))
        self._keep(test_run=done.folder, stopped=done.stopped, tested=done.lifts)
        return self.record

    def _search(self, evaluate: Evaluate) -> Search:
        request, splits = self.request, self.splits
        assert splits is not None
        families = {t.task.id: t.task.family for t in (*splits.development, *splits.selection)}
        rounds = request.rounds if request.old is None else max(1, request.rounds)
        search = Search(self.workshop, evaluate, request.metric, families, self.say)
        return search.run(self.order, old=request.old, rounds=rounds)

    def _warn_of_few_families(self, look: Look) -> None:
        """Say, before the test is paid for, that it cannot decide; its rates are still worth something."""
        assert self.splits is not None
        there, needed = len(self.splits.families("test")), fewest_families(look.alpha)
        if there < needed:
            self.say(
                f"the test split has {there} families; at alpha {look.alpha:g} a decision takes {needed}: "
                "this test cannot end in `helps`"
            )

    def _cases(self, version: Version) -> dict[str, str]:
        """The file of test cases that the teacher writes for a version; one that has cases keeps them."""
        request = self.request
        if not request.cases or any((version.folder / name).is_file() for name in FILES):
            return {}
        try:
            text, refused = write_cases(self.workshop.teacher, version.skill, request.cases)
        except (ProviderError, BudgetSpent) as error:
            self.say(f"no test cases were written: {error}")
            return {}
        count = 0 if text is None else len(json.loads(text)["evals"])
        self.say(f"test cases: {count} written, {refused} refused")
        self._keep(test_cases=count)
        return {} if text is None else {CASES_FILE: text}

    def _marked(self, version: Version, looks: int, cases: Mapping[str, str] = MappingProxyType({})) -> Path:
        """A copy with the lineage's marks: what it was refined on, how often its test split was looked at."""
        marks = replace(self.workshop.lineage, looks=looks).metadata
        for line in self.record.shortfalls[:1]:
            marks[SHORT_KEY] = line
        return self._derived(version, marks, cases)

    def _derived(self, version: Version, marks: Mapping[str, str], cases: Mapping[str, str]) -> Path:
        place = self.folder / "final"
        if place.exists():
            shutil.rmtree(place)
        out = place / version.folder.name
        return derive(version.folder, out, changed=cases, metadata_updates=marks)

    def _deliver(self, folder: Path) -> None:
        """Copy the skill to where the user wants it, over what an earlier call wrote there."""
        target = self.out / folder.name
        if target.exists() and not (self.request.replace or wrote(self.folder, target)):
            raise UsageError(
                f"{target} exists already; the new skill is in {folder}. Use --force, or another -o"
            )
        derive(folder, target, replace=target.exists())
        self._keep(written=str(target), written_digest=read_skill(target).digest)

    def _keep(self, **facts: object) -> None:
        """Add facts to the record, on disk too."""
        spent = dict(self._spent_before)
        for role, now in self.request.meter.spent_by_role.items():
            spent[role] = spent.get(role, Spent()) + now
        self.record = self.record.model_copy(update={**facts, "spent": spent})
        write_atomically(self.folder / FILE_NAME, self.record.model_dump_json(indent=1) + "\n")


def _choice(found: Search, from_old: bool) -> tuple[Version, str]:
    """The version to keep, and why."""
    best = found.best
    unscored = found.stopped or "nothing was measured"
    scored = sum(v.selection is not None for v in found.versions)
    if best is None and from_old:
        best, why = found.versions[0], f"{unscored}: the old skill stays"
    elif best is None:
        best = found.versions[-1]
        why = f"version {best.index} has no score: {unscored}"
    elif from_old and best.index == 0:
        why = f"none of {scored - 1} new versions did better on the selection split: the old skill stays"
    else:
        why = f"version {best.index} is the best of {scored} on the selection split"
    return best, why if found.gave_up is None else f"{why}. No further one: {found.gave_up}"


@dataclass(frozen=True)
class SplitGrading:
    """Grades arms on the splits of one generation."""

    request: GenerationRequest
    splits: Splits
    context: RunContext
    report: Reporter

    def evaluate(self, split: Split, arms: Arms) -> Evaluated:
        """All trials of these arms on a split, a few replies per task."""
        study = self._study(split, arms, SEARCH_REPEATS, ALPHA)
        store = open_run(study, self.context)
        self.context.display.say(f"{split} split: {', '.join(arms.named) or 'without skill'}")
        outcome = execute(study, store, self.context)
        return Evaluated(_not_all_lost(store, split), outcome.stopped)

    def test(self, arms: Arms, alpha: float, skill: LoadedSkill) -> Measured:
        """The test run, with its report."""
        old = self.request.old
        skills = [skill] if old is None else [skill, LoadedSkill(read_skill(old), old)]
        study = self._study("test", arms, self.request.repeats, alpha, skills)
        store = open_run(study, self.context)
        self.context.display.say(f"test split: {', '.join(arms.named)}")
        try:
            outcome = execute(study, store, self.context)
        finally:
            summary = self.report(store)
        _not_all_lost(store, "test")
        lifts = () if outcome.stopped is not None else tuple(tested_lifts(summary, self.request.metric))
        return Measured(str(store.folder), outcome.stopped, lifts)

    def _study(
        self, split: Split, arms: Arms, repeats: int, alpha: float, skills: Sequence[LoadedSkill] = ()
    ) -> Study:
        request, tasks = self.request, self.splits.tasks(split)
        return Study(
            arms,
            tasks,
            request.students,
            repeats=repeats,
            target=request.target,
            protocol=request.protocol,
            sampling=request.sampling,
            metric=request.metric,
            briefing=request.briefing,
            turns=request.turns,
            alpha=alpha,
            leaked=excluded_tasks(skills, tasks),
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


def tested_lifts(summary: Summary, metric: Metric) -> Iterator[MeasuredLift]:
    """The new skill against no skill, by student."""
    controls = {arm.arm for arm in summary.arms if arm.kind == "without_skill"}
    treatments = {arm.arm for arm in summary.arms if arm.kind == "with_skill"}
    for one in summary.comparisons:
        if one.control in controls and one.treatment in treatments:
            row = one.row(metric)
            without, with_skill = (
                math.log(level) if level and row.unit == "ratio" else level
                for level in (row.control, row.treatment)
            )
            yield MeasuredLift(
                model=one.model,
                without_skill=without,
                with_skill=with_skill,
                decision=one.conclusion.decision,
            )
