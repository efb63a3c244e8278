"""An eval: owed trials are run, appended, and survive whatever interrupts them.

A trial is appended only when it finished by itself; after stop() nothing is appended; the last attempt
counts, never the best of several.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from harness.errors import BudgetSpent, DeviceLost, HarnessBug, InfraError, StorageError
from harness.files import finished_trials, is_storage, storage_error, temporary_files, watching
from harness.grading.grade import Grader
from harness.models.failure import PermanentProviderError
from harness.models.protocol import Model
from harness.outcome import Cause
from harness.records import InfraFailure, RunRecord, Skill, TrialKey, TrialRecord
from harness.study.conversation import Conversation, Stopped
from harness.study.executors import Executor
from harness.study.plan import arm_by_id, grading_key, owed, request_for
from harness.study.store import RunStore
from harness.suite.catalogue import LoadedTask

ATTEMPTS = 2
"""Of one trial, when something of ours fails: whoever causes such failures is graded once more, not until
it goes well."""

LOST_IN_A_ROW = 10
"""Trials of one model, lost to its provider with no reply between them, after which the run stops."""

_PAUSE_S = 1.0
"""Between attempts: a provider or a driver may need a moment."""


class Observer(Protocol):
    """Is told what happens; may be called from several threads."""

    def stage(self, key: TrialKey, stage: str) -> None:
        """A trial enters a stage: ask, build, check, time."""
        ...

    def finished(self, trial: TrialRecord) -> None:
        """A trial is on disk."""
        ...


@dataclass(frozen=True)
class Budget:
    """Where to stop; None is no limit."""

    max_wall_s: float | None = None
    """What is asked of models is limited where it is asked (models/meter.py)."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    finished: int
    owed: int
    stopped: str | None
    """Why it stopped early; None when everything is done."""


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"


class Run:
    """One run being carried out."""

    def __init__(
        self,
        store: RunStore,
        record: RunRecord,
        tasks: Mapping[str, LoadedTask],
        skills: Mapping[str, Skill],
        models: Mapping[str, Model],
        grader: Grader,
        *,
        kill: Callable[[], None] = lambda: None,
    ) -> None:
        """`skills` by digest, `models` by name; `kill` ends every process that the grader started."""
        self._store = store
        self._record = record
        self._tasks = tasks
        self._skills = skills
        self._models = models
        self._grader = grader
        self._kill = kill
        self._lock = threading.Lock()
        self._stopped: str | None = None
        self._spent: str | None = None
        self._lost_in_a_row: Counter[str] = Counter()
        self._places = (temporary_files(), finished_trials(store.folder))

    # --- the whole run -------------------------------------------------------------------------

    def carry_out(self, executor: Executor, observer: Observer, budget: Budget) -> Outcome:
        """Run what is owed. KeyboardInterrupt comes through after everything was stopped."""
        before = self._store.load()
        for lost in {f.project for t in before for f in t.failures if f.project is not None}:
            self._grader.lost_a_device(lost)
        todo = owed(self._record, {t.key for t in before if not t.infra})
        timer = None
        if budget.max_wall_s is not None:
            timer = threading.Timer(budget.max_wall_s, self.stop, ["time budget", executor])
            timer.daemon = True
            timer.start()
        finished = 0
        try:
            for done in executor.map(lambda key: self._finish(key, observer), todo):
                finished += done
        except BaseException:
            self.stop("interrupted", executor)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return Outcome(finished, len(todo) - finished, self._stopped or self._spent)

    def stop(self, reason: str, executor: Executor) -> None:
        """Stop at once: what runs is killed and stays owed."""
        with self._lock:
            if self._stopped is None:
                self._stopped = reason
        executor.abandon()
        self._kill()

    def _finish(self, key: TrialKey, observer: Observer) -> bool:
        """Run one trial and append it; False when the run was stopped meanwhile, or its budget is spent."""
        if self._spent is not None:
            return False
        try:
            trial = self._attempts(key, observer)
        except BudgetSpent as error:
            # What else runs may yet finish with what it has been given; nothing new begins.
            with self._lock:
                self._spent = self._spent or f"{error}"
            return False
        with self._lock:
            if self._stopped is not None or trial is None:
                return False
            with watching(*self._places):
                self._store.append(trial)
        observer.finished(trial)
        self._stop_if_hopeless(trial)
        return True

    def _stop_if_hopeless(self, trial: TrialRecord) -> None:
        """Raises PermanentProviderError where a provider has failed so often that the rest would be lost, and
        StorageError where there is nowhere to write to."""
        if trial.infra and trial.failures[-1].cause is Cause.STORAGE:
            raise StorageError(trial.failures[-1].message)
        model = trial.key.model
        with self._lock:
            lost = trial.infra and trial.failures[-1].cause is Cause.PROVIDER
            row = self._lost_in_a_row[model] = self._lost_in_a_row[model] + 1 if lost else 0
        if row >= LOST_IN_A_ROW:
            said = trial.failures[-1].message
            raise PermanentProviderError(f"{row} trials in a row were lost to the provider: {said}")

    # --- one trial -----------------------------------------------------------------------------

    def _attempts(self, key: TrialKey, observer: Observer) -> TrialRecord | None:
        """A trial, retried when something of ours failed: the one boundary at which that is caught."""
        started = now()
        conversation = self._conversation(key, observer)
        failures: list[InfraFailure] = []
        for attempt in range(ATTEMPTS):
            try:
                turns = conversation.finish()
                grade = turns[-1].grade
                return TrialRecord(
                    key=key,
                    generation_key=conversation.generation_key,
                    grading_key=None if grade is None else grading_key(grade),
                    turns=turns,
                    failures=tuple(failures),
                    started=started,
                    finished=now(),
                )
            except Stopped:
                return None
            except PermanentProviderError:
                raise
            except (InfraError, OSError) as error:
                if self._stopped is not None:
                    return None
                told = storage_error(error, self._places) or error
                failures.append(_failure(told))
                if isinstance(told, StorageError):
                    break  # vain before somebody has mended it
                self._store.set_aside(key, conversation.turn)
                if attempt + 1 < ATTEMPTS:
                    time.sleep(_PAUSE_S)
        return TrialRecord(
            key=key,
            generation_key=conversation.generation_key,
            grading_key=None,
            turns=(),
            failures=tuple(failures),
            infra=True,
            started=started,
            finished=now(),
        )

    def _conversation(self, key: TrialKey, observer: Observer) -> Conversation:
        """The exchange of a trial, from the beginning; what was paid for lies on disk."""
        config = self._record.config
        return Conversation(
            key,
            request_for(key, config, self._tasks, self._skills),
            config.turns,
            loaded=self._tasks[key.task],
            skills=[self._skills[digest] for digest in arm_by_id(config)[key.arm].skills],
            model=self._models[key.model],
            grader=self._grader,
            store=self._store,
            stage=lambda stage: observer.stage(key, stage),
            stopped=lambda: self._stopped is not None,
        )


def _failure(error: InfraError | OSError) -> InfraFailure:
    """The failed attempt, for the record."""
    cause = error.cause if isinstance(error, InfraError) else HarnessBug.cause
    if is_storage(error):  # full for a moment, and not any more
        cause = Cause.STORAGE
    project = error.project if isinstance(error, DeviceLost) else None
    return InfraFailure(cause=cause, message=f"{error}", at=now(), project=project)
