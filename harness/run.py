"""An eval: owed trials are run, appended, and survive whatever interrupts them.

Owns: retries of our own failures, budgets, and stopping. Does not own: what a trial does inside a
stage, or what is reported. Invariant: a trial is appended only when it finished by itself; after
stop() nothing is appended.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from harness.catalogue import LoadedTask
from harness.errors import HarnessBug, InfraError, LiftbenchError
from harness.executors import Executor
from harness.grade import Grader
from harness.models.failure import PermanentProviderError
from harness.models.protocol import Model
from harness.plan import generation_key, grading_key, owed, request_for
from harness.records import (
    Finding,
    InfraFailure,
    Request,
    RunRecord,
    Skill,
    TrialKey,
    TrialRecord,
    Turn,
)
from harness.store import RunStore
from harness.student import Answer, ask, read

ATTEMPTS = 3
"""Of one trial, when something of ours fails."""


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
    max_cost_usd: float | None = None


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
        self._spent_usd = 0.0

    # --- the whole run -------------------------------------------------------------------------

    def carry_out(self, executor: Executor, observer: Observer, budget: Budget) -> Outcome:
        """Run what is owed. KeyboardInterrupt comes through after everything was stopped."""
        before = self._store.load()
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
                if budget.max_cost_usd is not None and self._spent_usd >= budget.max_cost_usd:
                    self.stop("cost budget", executor)
        except BaseException:
            self.stop("interrupted", executor)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return Outcome(finished, len(todo) - finished, self._stopped)

    def stop(self, reason: str, executor: Executor) -> None:
        """Stop at once: what runs is killed and stays owed."""
        with self._lock:
            if self._stopped is None:
                self._stopped = reason
        executor.abandon()
        self._kill()

    def _finish(self, key: TrialKey, observer: Observer) -> bool:
        """Run one trial and append it; False when the run was stopped meanwhile."""
        trial = self._attempts(key, observer)
        with self._lock:
            if self._stopped is not None or trial is None:
                return False
            self._store.append(trial)
            self._spent_usd += sum(t.reply.cost_usd or 0.0 for t in trial.turns if not t.reply.recorded)
        observer.finished(trial)
        return True

    # --- one trial -----------------------------------------------------------------------------

    def _attempts(self, key: TrialKey, observer: Observer) -> TrialRecord | None:
        """A trial, retried when something of ours failed: the one boundary at which that is caught."""
        started = now()
        request = request_for(key, self._record.config, self._tasks, self._skills)
        paid = generation_key(key, request)
        failures: list[InfraFailure] = []
        for attempt in range(ATTEMPTS):
            try:
                return self._attempt(key, request, paid, started, failures, observer)
            except PermanentProviderError:
                raise
            except (InfraError, OSError) as error:
                if self._stopped is not None:
                    return None
                cause = error.cause if isinstance(error, InfraError) else HarnessBug.cause
                failures.append(InfraFailure(cause=cause, message=f"{error}", at=now()))
                time.sleep(attempt)
            except LiftbenchError:
                raise
        return TrialRecord(
            key=key,
            generation_key=paid,
            grading_key=None,
            turns=(),
            failures=tuple(failures),
            infra=True,
            started=started,
            finished=now(),
        )

    def _attempt(
        self,
        key: TrialKey,
        request: Request,
        paid: str,
        started: str,
        failures: list[InfraFailure],
        observer: Observer,
    ) -> TrialRecord:
        answer = self._answer(key, request, paid, observer)
        loaded = self._tasks[key.task]
        if isinstance(answer.project, Finding):
            project = None
            grade = self._grader.no_project(answer.project, loaded)
        else:
            project = answer.project
            self._store.write_project(key, project)
            log = self._store.trial_folder(key) / "build.log"
            grade = self._grader.grade(
                project, loaded, log=log, observer=lambda stage: observer.stage(key, stage)
            )
            self._store.write_grade(key, grade)
        turn = Turn(
            index=0,
            prompt_digest=request.prompt_digest,
            reply=answer.reply,
            project=None if project is None else project.digest,
            grade=grade,
        )
        return TrialRecord(
            key=key,
            generation_key=paid,
            grading_key=grading_key(grade),
            turns=(turn,),
            failures=tuple(failures),
            started=started,
            finished=now(),
        )

    def _answer(self, key: TrialKey, request: Request, paid: str, observer: Observer) -> Answer:
        """The reply: kept from an interrupted attempt, or asked for now and kept at once."""
        kept = self._store.paid_reply(key, paid)
        if kept is not None:
            return read(kept)
        observer.stage(key, "ask")
        answer = ask(self._models[key.model], request)
        self._store.write_reply(key, paid, request, answer.reply)
        return answer
