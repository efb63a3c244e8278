"""Orders for grades, on disk: what was accepted survives a restart, and the same order is graded once.

    <folder>/<id[:2]>/<id>/order.json     accepted
                           grade.json     graded, or given up as infra

Memory holds ids of what waits, never projects or grades.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from harness.errors import InfraError, NoGraderLeft
from harness.files import write_atomically
from harness.grading.setup import ProjectGrader
from harness.records import Finding, Grade, Project, Protocol, Record, Target, digest_of
from harness.records.grade import GRADER_VERSION
from harness.records.reasons import reason_of
from harness.suite.catalogue import LoadedTask

ATTEMPTS: Final = 2
"""Of an order whose grade fails for infrastructure."""
_PAUSE_S: Final = 1.0

Status = Literal["queued", "running", "done"]


class QueueFull(Exception):
    """As many orders wait as may; try again later."""


class GradeOrder(Record):
    """A project for a task; or a reply without one."""

    task: str
    task_digest: str
    target: Target
    protocol: Protocol
    grader_version: str = GRADER_VERSION
    given: Project | Finding

    @property
    def id(self) -> str:
        """The grading key: equal orders are one."""
        given = self.given.digest if isinstance(self.given, Project) else digest_of(self.given.model_dump())
        return digest_of([self.task_digest, self.target, self.protocol, self.grader_version, given])[:32]


class Rewards(Record):
    """For training: by name, never one number. None is unscored: not measured here, or our failure."""

    compiled: float | None = None
    correct: float | None = None
    correct_emulated: float | None = None
    speedup: float | None = None
    """Over the fastest reference; 0 where the project is not correct."""
    sol: float | None = None
    """Mean SOL score of the timed workloads; 0 where the project is not correct."""

    @classmethod
    def of(cls, grade: Grade) -> Rewards:
        correct, timing = grade.correct, grade.timing
        limits = [] if timing is None else [w.physics for w in timing.workloads if w.physics is not None]
        known = [limit.score for limit in limits if limit.score is not None]
        emulated = grade.correct_emulated if grade.target == "cuda" else None
        return cls(
            compiled=float(grade.compiled) if grade.compiled or correct is not None else None,
            correct=None if correct is None else float(correct),
            correct_emulated=None if emulated is None else float(emulated),
            speedup=0.0 if correct is False else None if timing is None else timing.speedup.value,
            sol=0.0 if correct is False else sum(known) / len(known) if known else None,
        )


class Answer(Record):
    """What is known of an order."""

    id: str
    status: Status
    grade: Grade | None = None
    rewards: Rewards = Rewards()
    unscored: str | None = None
    """Why there is no grade: an infrastructure failure. Ordering again tries again."""


class OrderBook:
    """Accepts orders and grades them in threads."""

    def __init__(
        self,
        folder: Path,
        grader: ProjectGrader,
        tasks: Mapping[str, LoadedTask],
        *,
        at_once: int,
        most_waiting: int,
        say: Callable[[str], None],
    ) -> None:
        """Takes up what an earlier process accepted and did not finish, beyond `most_waiting` too."""
        self._folder = folder
        self._grader = grader
        self._tasks = tasks
        self.most_waiting = most_waiting
        self._say = say
        self._todo: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._status: dict[str, Status] = {}
        self._lock = threading.RLock()
        self._closed = False
        self.lost: str | None = None
        """Why nothing can be graded any more."""
        for path in sorted(folder.glob("*/*/order.json")):
            if not path.with_name("grade.json").exists():
                self._enqueue(path.parent.name)
        if waiting := len(self._status):
            say(f"{waiting} orders of an earlier process are taken up")
        for _ in range(at_once):
            # They live as long as this process: a sandboxed process dies with the thread that started it.
            threading.Thread(target=self._work, daemon=True).start()

    @property
    def waiting(self) -> int:
        """Orders that are not finished."""
        return len(self._status)

    def under_way(self, key: str) -> bool:
        """Whether waiting may bring its grade. Takes no lock, and reads nothing from disk."""
        return key in self._status and not self._closed

    def accept_all(self, orders: Sequence[GradeOrder]) -> list[Answer]:
        """Store and queue those that are not known yet: all, or none. Raises QueueFull, OSError."""
        with self._lock:
            known = {order.id: self.answer(order.id) for order in orders}
            new = {o.id: o for o in orders if (found := known[o.id]) is None or found.unscored is not None}
            if len(self._status) + len(new) > self.most_waiting and new:
                raise QueueFull
            for key, order in new.items():
                place = self._place(key)
                write_atomically(place / "order.json", order.model_dump_json() + "\n")
                (place / "grade.json").unlink(missing_ok=True)
                self._enqueue(key)
                known[key] = Answer(id=key, status="queued")
        return [answer for order in orders if (answer := known[order.id]) is not None]

    def answer(self, key: str) -> Answer | None:
        """What is known of an order; None if it was never accepted."""
        with self._lock:
            status = self._status.get(key)
        if status is not None:
            return Answer(id=key, status=status)
        try:
            return Answer.model_validate_json((self._place(key) / "grade.json").read_text())
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """Begin nothing more; what is under way stays accepted."""
        with self._lock:
            self._closed = True

    def _place(self, key: str) -> Path:
        return self._folder / key[:2] / key

    def _enqueue(self, key: str) -> None:
        self._status[key] = "queued"
        self._todo.put(key)

    def _work(self) -> None:
        while True:
            key = self._todo.get()
            if self._closed:
                continue  # queued again by the next process
            self._status[key] = "running"
            try:
                answer = self._graded(key)
                if answer is not None and not self._closed:
                    write_atomically(self._place(key) / "grade.json", answer.model_dump_json() + "\n")
            except OSError as error:  # a full disk
                self._say(f"order {key} stays queued: {error}")
                time.sleep(_PAUSE_S)
                self._enqueue(key)
                continue
            with self._lock:
                self._status.pop(key, None)

    def _graded(self, key: str) -> Answer | None:
        """The answer; None where nothing can be graded any more, and the order is kept."""
        place = self._place(key)
        try:
            order = GradeOrder.model_validate_json((place / "order.json").read_text())
        except ValidationError as error:  # of another version
            return Answer(id=key, status="done", unscored=f"the order cannot be read: {reason_of(error)}")
        why = ""
        for _ in range(ATTEMPTS):
            try:
                grade = self._grade(order, place / "build.log")
            except NoGraderLeft as error:
                self.lost = f"{error}"
                self._say(self.lost)
                return None
            except (InfraError, OSError) as error:
                why = f"{error}"
                self._say(f"{order.task}: not graded: {why}")
                time.sleep(_PAUSE_S)
                continue
            return Answer(id=key, status="done", grade=grade, rewards=Rewards.of(grade))
        return Answer(id=key, status="done", unscored=why)

    def _grade(self, order: GradeOrder, log: Path) -> Grade:
        loaded = self._tasks.get(order.task)
        if loaded is None or loaded.task.digest != order.task_digest:
            raise InfraError(f"task {order.task} was changed or removed after the order was accepted")
        if isinstance(order.given, Finding):
            return self._grader.no_project(order.given, loaded)
        return self._grader.grade(order.given, loaded, log=log)
