"""Grades the paid replies of a run again, into a new run that names it; no model is asked.

The last project of each trial is graded; a trial that was lost to infrastructure is graded if its only
reply is on disk. The primary metric, the arms and the repeats stay those of the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness import __version__
from harness.errors import UsageError
from harness.grading.setup import ProjectGrader
from harness.outcome import Verdict
from harness.records import Finding, Grade, RunRecord, Target, TrialKey, TrialRecord, Turn, digest_of
from harness.records.grade import GRADER_VERSION
from harness.student.answer import parse_reply
from harness.study.conversation import Stopped
from harness.study.plan import generation_key, plan, run_hash
from harness.study.run import RunContext, carry_out, open_folder
from harness.study.store import RunStore
from harness.suite.catalogue import LoadedTask
from harness.suite.sizes import refuse_too_large
from sandboxes.job import IMAGES_FACT


@dataclass(frozen=True)
class Paid:
    """The exchange of a trial that was paid for, the grades of the first run included."""

    generation_key: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Source:
    """What can be graded again of a run."""

    store: RunStore
    record: RunRecord
    """With those tasks only that are graded again."""
    tasks: Mapping[str, LoadedTask]
    paid: Mapping[TrialKey, Paid]
    """In the order of the plan."""
    missing: int
    """Planned trials whose exchange has not ended."""


def read_source(store: RunStore, record: RunRecord, tasks: Sequence[LoadedTask], target: Target) -> Source:
    """The paid replies of a run to `tasks`, as they are now.

    Raises UsageError where the run has no reply to them, where a task is not the one that was asked for, and
    for a task that does not exist for `target`.
    """
    asked = record.config.tasks
    found = {t.task.id: t for t in tasks if t.task.id in asked}
    if not found:
        raise UsageError(f"{record.run_id} has none of these tasks: it has {', '.join(asked)}")
    changed = [name for name, one in found.items() if record.lock.tasks.get(name) != one.task.digest]
    if changed:
        raise UsageError(
            f"{', '.join(changed)}: changed since {record.run_id}, so its replies answer another text. Give "
            "the folder of the tasks that were asked (--tasks-root), or leave these out (--tasks)"
        )
    unfit = [name for name, one in found.items() if target not in one.task.dtypes]
    if unfit:
        raise UsageError(f"not for target {target}: {', '.join(unfit)}")
    kept = record.config.model_copy(update={"tasks": tuple(name for name in asked if name in found)})
    trials = {trial.key: trial for trial in store.load()}
    planned = plan(kept)
    paid = {key: one for key in planned if (one := _paid(store, record, key, trials.get(key)))}
    if not paid:
        raise UsageError(f"{record.run_id} has no reply that could be graded again")
    narrowed = record.model_copy(update={"config": kept})
    return Source(store, narrowed, found, paid, len(planned) - len(paid))


def _paid(store: RunStore, record: RunRecord, key: TrialKey, trial: TrialRecord | None) -> Paid | None:
    """The exchange of a finished trial, else the only reply of one whose grading failed; None without one."""
    if trial is not None and not trial.infra:
        return Paid(trial.generation_key, trial.turns)
    try:
        request = store.request(key)
    except UsageError:
        return None
    paid = generation_key(key, request)
    reply = store.paid_reply(key, paid)
    if reply is None or record.config.turns > 1 or (request.tools and reply.tool_calls):
        return None
    turn = Turn(index=0, prompt_digest=request.prompt_digest, reply=reply, project=None, grade=None)
    return Paid(paid, (turn,))


@dataclass(frozen=True)
class Regraded:
    """The grading of one trial's last project."""

    key: TrialKey
    paid: Paid
    loaded: LoadedTask
    grader: ProjectGrader
    store: RunStore
    stage: Callable[[str], None]
    stopped: Callable[[], bool]

    @property
    def generation_key(self) -> str:
        """That of the first run."""
        return self.paid.generation_key

    @property
    def turn(self) -> int:
        """The last turn that has a project, or a reply without one."""
        return next(turn.index for turn in reversed(self.paid.turns) if not turn.kept)

    def finish(self) -> tuple[Turn, ...]:
        """The turns; the last project's grade is new, earlier ones have none. Raises what the grader does."""
        if self.stopped():
            raise Stopped
        number, made = self.turn, list[Turn]()
        grade = None
        for turn in self.paid.turns:
            if turn.index == number:
                grade = self._grade(turn)
            project = turn.project if grade is None else grade.project
            made.append(turn.model_copy(update={"grade": grade, "project": project}))
        return tuple(made)

    def _grade(self, turn: Turn) -> Grade:
        before, found = turn.grade, parse_reply(turn.reply)
        if isinstance(found, Finding):
            if before is not None and before.verdict is Verdict.NO_PROJECT:
                found = before.finding  # it also knows the calls of the file tool
            return self.grader.no_project(found, self.loaded)
        self.store.write_project(self.key, found, turn.index)
        log = self.store.turn_folder(self.key, turn.index) / "build.log"
        grade = self.grader.grade(found, self.loaded, log=log, observer=self.stage)
        if self.stopped():  # the project's processes may have been killed by us
            raise Stopped
        self.store.write_grade(self.key, grade, turn.index)
        return grade


def regrade(source: Source, target: Target, context: RunContext, *, emulate: bool = True) -> RunStore:
    """Grade a run's replies here; the new run, or the one that the same call began before.

    `emulate`: whether the grader of `context` checks CUDA projects on the emulated GPU where there is none.
    Raises UsageError if a workload does not fit in memory, and KeyboardInterrupt after everything was
    stopped.
    """
    setup, record = context.setup, source.record
    refuse_too_large(list(source.tasks.values()), target, setup.grader.device_bytes)
    config = record.config.model_copy(update={"target": target, "sandbox": setup.sandbox.name})
    here = {
        "grader_version": f"{__version__}/{GRADER_VERSION}",
        "machine": setup.machine,
        "image": setup.sandbox.facts().get(IMAGES_FACT),
    }
    lock = record.lock.model_copy(update=here)
    # Another hash than that of any `eval`, which must not resume in this folder.
    digest = digest_of([run_hash(config, lock), record.run_id, setup.machine.digest, emulate])[:8]
    store = open_folder(config, lock, digest, context, record.run_id)
    for key in source.paid:
        store.copy_exchanges(source.store, key)

    def begin(key: TrialKey, stage: Callable[[str], None], stopped: Callable[[], bool]) -> Regraded:
        return Regraded(key, source.paid[key], source.tasks[key.task], setup.grader, store, stage, stopped)

    carry_out(store, list(source.paid), begin, context)
    return store
