"""Opens the run of a study, new or resumed, runs its owed trials and stores them.

A trial is stored only when it finished by itself, and nothing is stored after stop(). The last attempt
counts, never the best of several.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from harness.errors import (
    BudgetSpent,
    DeviceLost,
    HarnessBug,
    InfraError,
    NoGraderLeft,
    PermanentProviderError,
    StorageError,
    UsageError,
)
from harness.files import finished_trials, is_storage, storage_error, temporary_files, watching
from harness.grading.setup import GradingSetup, ProjectGrader
from harness.models import Model
from harness.outcome import Cause
from harness.records import (
    Briefing,
    InfraFailure,
    RunConfig,
    RunLock,
    RunRecord,
    Skill,
    TrialKey,
    TrialRecord,
    Turn,
    utc_now,
)
from harness.study.conversation import Conversation, Stopped
from harness.study.executor import LocalExecutor
from harness.study.plan import grading_key, plan, request_for, run_hash
from harness.study.store import RunStore, sole_writer
from harness.study.study import Study
from harness.suite.catalogue import LoadedTask
from harness.suite.sizes import refuse_too_large
from harness.text import slug
from sandboxes.job import IMAGES_FACT

ATTEMPTS = 2
"""Attempts per trial after infrastructure failures: a project that causes them gets one retry."""
LOST_IN_A_ROW = 10
"""Consecutive trials of one model lost to its provider, after which the run stops."""
_PAUSE_S = 1.0
"""Between attempts, for a provider or driver to recover."""


class Observer(Protocol):
    """Progress callbacks; called from several threads."""

    def stage(self, key: TrialKey, stage: str) -> None:
        """A trial begins a stage: ask, build, check, time."""

    def finished(self, trial: TrialRecord) -> None:
        """A trial is stored."""


@dataclass(frozen=True)
class RunResult:
    """What one call of `execute` did; `owed` trials are left for the next."""

    finished: int
    owed: int
    stopped: str | None
    """Why it stopped early; None when all trials are done."""


class Exchange(Protocol):
    """One trial under way."""

    @property
    def generation_key(self) -> str:
        """Digest of what was paid for."""

    @property
    def turn(self) -> int:
        """The current turn, or the next one."""

    def finish(self) -> tuple[Turn, ...]:
        """All turns; called again after an infrastructure failure."""


Begin = Callable[[TrialKey, Callable[[str], None], Callable[[], bool]], Exchange]
"""Begins a trial: its key, what is called with the name of each stage, and whether the run was stopped."""


class Display(Protocol):
    """Shows what happens while it happens."""

    def say(self, text: str) -> None:
        """Print one line."""

    def waiting(self, what: str) -> AbstractContextManager[None]:
        """Show that something long is under way."""

    def trials(self, planned: int, finished: int, models: int) -> AbstractContextManager[Observer]:
        """Show trials as they finish; `finished` of `planned` are on disk already."""


@dataclass(frozen=True)
class RunContext:
    """With what, and within which limits, studies are executed."""

    setup: GradingSetup
    models: Mapping[str, Model]
    runs: Path
    max_wall_s: float | None
    """Time limit of a run; None is no limit. The models' meter limits tokens, dollars and calls."""
    connections: int
    display: Display
    fresh: bool = False
    """Begin a new run even if the same study has one."""


def open_run(study: Study, context: RunContext) -> RunStore:
    """The study's run: the latest of the same study, to be resumed, or a new one.

    Raises UsageError if a workload does not fit in memory, or the latest is an unfinished one with another
    briefing.
    """
    setup = context.setup
    refuse_too_large(study.tasks, study.target, setup.grader.device_bytes)
    image = setup.sandbox.facts().get(IMAGES_FACT)
    config, lock = study.resolve(setup.sandbox.name, setup.machine, image)
    digest = run_hash(config, lock)
    earlier = None if context.fresh else _latest(context.runs, digest)
    if earlier is not None:
        return earlier
    if not context.fresh:
        other = replace(study, briefing="contract" if study.briefing == "full" else "full")
        alike = run_hash(*other.resolve(setup.sandbox.name, setup.machine, image))
        _refuse_unfinished(_latest(context.runs, alike), study.briefing)
    return _create(config, lock, digest, context.runs)


def open_folder(
    config: RunConfig, lock: RunLock, digest: str, context: RunContext, regraded_from: str | None = None
) -> RunStore:
    """The latest run whose name ends in `digest`, or a new one (always with `context.fresh`)."""
    earlier = None if context.fresh else _latest(context.runs, digest)
    return earlier or _create(config, lock, digest, context.runs, regraded_from)


def _create(
    config: RunConfig, lock: RunLock, digest: str, runs: Path, regraded_from: str | None = None
) -> RunStore:
    created = utc_now()
    stamp = created.replace("-", "").replace(":", "")
    name = f"{stamp}-{slug('-'.join(config.skills) or 'without-skill')}-{digest}"
    record = RunRecord(run_id=name, created=created, config=config, lock=lock, regraded_from=regraded_from)
    return RunStore.create(runs / name, record)


def _latest(runs: Path, digest: str) -> RunStore | None:
    found = sorted(path.parent for path in runs.glob(f"*-{digest}/run.json"))
    return RunStore(found[-1]) if found else None


def _refuse_unfinished(store: RunStore | None, wanted: Briefing) -> None:
    """Raise UsageError if the run, of the same study but for the briefing, has trials left."""
    if store is None:
        return
    config = store.run().config
    owed = len(plan(config)) - sum(not trial.infra for trial in store.load())
    if owed > 0:
        raise UsageError(
            f"--briefing {wanted}: {store.folder} was begun with --briefing {config.briefing} and owes "
            f"{owed} trials; give --briefing {config.briefing} to resume it, or --fresh to begin another run"
        )


def execute(study: Study, store: RunStore, context: RunContext) -> RunResult:
    """Run the owed trials of a study's run and store them."""
    config, grader = store.run().config, context.setup.grader
    tasks = {t.task.id: t for t in study.tasks}
    asking = Asking(store, config, tasks, study.arms.library, context.models, grader)
    return carry_out(store, plan(config), asking.begin, context)


def carry_out(store: RunStore, keys: Sequence[TrialKey], begin: Begin, context: RunContext) -> RunResult:
    """Run those of the trials that a run owes, and store them."""
    setup, say = context.setup, context.display.say
    with sole_writer(store.folder):
        runner = Runner(store, keys, setup.grader, begin, kill=setup.stop)
        finished = sum(not trial.infra for trial in store.load())  # lost trials are run again
        say(f"run {store.folder}: {len(keys)} trials, {finished} finished before")
        models = len({key.model for key in keys})
        with context.display.trials(len(keys), finished, models) as observer, setup.noting(store.note):
            executor = LocalExecutor(max(context.connections, setup.at_once))
            result = runner.execute(executor, observer, context.max_wall_s)
    if result.stopped is not None:
        say(f"stopped: {result.stopped}; {result.owed} trials are owed")
    return result


@dataclass(frozen=True)
class Asking:
    """Begins trials by asking models."""

    store: RunStore
    config: RunConfig
    tasks: Mapping[str, LoadedTask]
    skills: Mapping[str, Skill]
    """By digest."""
    models: Mapping[str, Model]
    grader: ProjectGrader

    def begin(self, key: TrialKey, stage: Callable[[str], None], stopped: Callable[[], bool]) -> Conversation:
        """The conversation of one trial."""
        config = self.config
        arm = next(arm for arm in config.arms if arm.id == key.arm)
        return Conversation(
            key,
            request_for(key, config, self.tasks, self.skills),
            config.turns,
            briefing=config.briefing,
            loaded=self.tasks[key.task],
            skills=[self.skills[digest] for digest in arm.skills],
            model=self.models[key.model],
            grader=self.grader,
            store=self.store,
            stage=stage,
            stopped=stopped,
        )


@dataclass
class Runner:
    """Runs the owed ones of the trials `keys`."""

    store: RunStore
    keys: Sequence[TrialKey]
    grader: ProjectGrader
    begin: Begin
    kill: Callable[[], None] = lambda: None
    """Ends all processes of the grader."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped: str | None = None
        self._spent: str | None = None
        self._lost_in_a_row: Counter[str] = Counter()
        self._places = (temporary_files(), finished_trials(self.store.folder))

    def execute(
        self, executor: LocalExecutor, observer: Observer, max_wall_s: float | None = None
    ) -> RunResult:
        """Run the owed trials. KeyboardInterrupt is raised after everything was stopped."""
        before = self.store.load()
        for lost in {f.project for t in before for f in t.failures if f.project is not None}:
            self.grader.lost_a_device(lost)
        done_before = {t.key for t in before if not t.infra}
        todo = [key for key in self.keys if key not in done_before]
        timer = threading.Timer(max_wall_s or 0.0, self.stop, ["time budget", executor])
        timer.daemon = True
        if max_wall_s is not None:
            timer.start()
        finished = 0
        try:
            for done in executor.map(partial(self._finish, observer), todo):
                finished += done
        except BaseException:
            self.stop("interrupted", executor)
            raise
        finally:
            timer.cancel()
        return RunResult(finished, len(todo) - finished, self._stopped or self._spent)

    def stop(self, reason: str, executor: LocalExecutor) -> None:
        """Kill running trials, which stay owed, and start no others."""
        with self._lock:
            if self._stopped is None:
                self._stopped = reason
        executor.abandon()
        self.kill()

    def _finish(self, observer: Observer, key: TrialKey) -> bool:
        """Run and store one trial; False when the run was stopped meanwhile, or its budget is spent."""
        if self._spent is not None:
            return False
        try:
            trial = self._attempts(key, observer)
        except BudgetSpent as error:
            # Running trials may still finish with replies that they have; no further request is sent.
            with self._lock:
                self._spent = self._spent or f"{error}"
            return False
        with self._lock:
            if self._stopped is not None or trial is None:
                return False
            with watching(*self._places):
                self.store.append(trial)
        observer.finished(trial)
        self._stop_if_hopeless(trial)
        return True

    def _stop_if_hopeless(self, trial: TrialRecord) -> None:
        """Raises PermanentProviderError after LOST_IN_A_ROW failures of a provider, and StorageError when a
        folder cannot be written to."""
        if trial.infra and trial.failures[-1].cause is Cause.STORAGE:
            raise StorageError(trial.failures[-1].message)
        model = trial.key.model
        with self._lock:
            lost = trial.infra and trial.failures[-1].cause is Cause.PROVIDER
            row = self._lost_in_a_row[model] = self._lost_in_a_row[model] + 1 if lost else 0
        if row >= LOST_IN_A_ROW:
            said = trial.failures[-1].message
            raise PermanentProviderError(f"{row} trials in a row were lost to the provider: {said}")

    def _attempts(self, key: TrialKey, observer: Observer) -> TrialRecord | None:
        """One trial, retried after infrastructure failures: the one place that turns them into records."""
        started = utc_now()
        trial = self.begin(key, lambda stage: observer.stage(key, stage), lambda: self._stopped is not None)
        failures: list[InfraFailure] = []
        turns: tuple[Turn, ...] = ()
        while not turns and len(failures) < ATTEMPTS:
            try:
                turns = trial.finish()
            except Stopped:
                return None
            except (InfraError, OSError) as error:
                if isinstance(error, PermanentProviderError):
                    raise
                if self._stopped is not None:
                    return None
                if isinstance(error, NoGraderLeft):
                    raise
                told = storage_error(error, self._places) or error
                failures.append(_failure(told))
                if isinstance(told, StorageError):
                    break  # a retry is useless until somebody repairs it
                del told  # its frames may hold most of a GPU's memory
                self.store.set_aside(key, trial.turn)
                if len(failures) < ATTEMPTS:
                    time.sleep(_PAUSE_S)
        grade = turns[-1].grade if turns else None
        return TrialRecord(
            key=key,
            generation_key=trial.generation_key,
            grading_key=None if grade is None else grading_key(grade),
            turns=turns,
            failures=tuple(failures),
            infra=not turns,
            started=started,
            finished=utc_now(),
        )


def _failure(error: InfraError | OSError) -> InfraFailure:
    cause = error.cause if isinstance(error, InfraError) else HarnessBug.cause
    if is_storage(error):  # the disk was full for a moment
        cause = Cause.STORAGE
    project = error.project if isinstance(error, DeviceLost) else None
    return InfraFailure(cause=cause, message=f"{error}", at=utc_now(), project=project)
