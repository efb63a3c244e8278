"""Who is measured, and which of them live at a time.

Resident contenders are loaded once and stand frozen between their turns; the others are started for a turn
and killed after it. During a turn only that contender's threads run, and no other process of a student's
lives unless it is frozen in host memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from harness.errors import HarnessBug
from harness.judge.sampler import Sampler
from harness.judge.worker_client import WorkerClient

STUDENT = "student"
NULL = "null"
COMPILED = "compile"

Start = Callable[[], WorkerClient]


@dataclass(frozen=True)
class Candidates:
    """Student, references and the null project."""

    start: dict[str, Start]
    """How each is started: a worker that is not loaded yet. `student` first, `null` last."""
    resident: dict[str, WorkerClient]
    """Those of them that are loaded already. The student may be dismissed and brought back."""
    notes: tuple[str, ...] = ()
    """Who cannot take part, and why."""

    def dismiss(self) -> None:
        """End the student's process, where one is resident."""
        student = self.resident.pop(STUDENT, None)
        if student is not None:
            student.close()


def not_compiled(error: HarnessBug) -> str:
    """The note where torch.compile takes no part."""
    return f"torch.compile as an opponent: not measured: {error}"


class Schedule:
    """The contenders of one problem's measurement."""

    def __init__(self, bench: Sampler, contenders: Candidates) -> None:
        self._sampler = bench
        self._start = contenders.start
        self._resident = contenders.resident
        self.notes = list(contenders.notes)
        """Who could not take part, and why."""
        self.pace_us: dict[str, float] = {}
        """The least that a call was seen to take, of those that were warmed up: see `seen`."""

    @property
    def names(self) -> list[str]:
        """All that take part, the student first and the null project last."""
        return list(self._start)

    def prepare(self, warm_up_s: float | None = None) -> None:
        """Warm up the residents, then freeze them. Raises Failed, or HarnessBug for one of ours."""
        for name, contender in list(self._resident.items()):
            try:
                self._ready(name, contender, warm_up_s)
            except HarnessBug as error:
                if name != COMPILED:
                    raise
                # Not every machine can compile at run time, and not every op can be compiled.
                self.notes.append(not_compiled(error))
                del self._resident[name], self._start[name]
                continue
            contender.freeze(True)

    def bring_student(self) -> None:
        """Start a process of the student's that stays, warm it up and freeze it. Raises Failed."""
        contender = self._resident[STUDENT] = self._start[STUDENT]()
        contender.load()
        self._ready(STUDENT, contender)
        contender.freeze(True)

    def _ready(self, name: str, contender: WorkerClient, warm_up_s: float | None = None) -> None:
        self._sampler.plan(contender, trusted=name != STUDENT)
        usual_s = self._sampler.numbers.warm_up_s if warm_up_s is None else warm_up_s
        seconds = 0.0 if name == NULL else usual_s
        self.seen(name, self._sampler.warm_up(contender, seconds))

    def seen(self, name: str, pace_us: float) -> None:
        """A call took about that. The least counts: who is slow while it warms up would else have small
        batches, of which the constant that is taken off is most."""
        self.pace_us[name] = min(pace_us, self.pace_us.get(name, math.inf))

    @contextmanager
    def turn(self, name: str) -> Iterator[WorkerClient]:
        """The contender, warmed up, while it is its turn."""
        resident = self._resident.get(name)
        if resident is not None:
            resident.freeze(False)
            yield resident
            resident.freeze(True)
            return
        with self.fresh(name) as contender:
            yield contender

    @contextmanager
    def fresh(self, name: str) -> Iterator[WorkerClient]:
        """A process of its own, warmed up, and killed at the end."""
        contender = self._start[name]()
        try:
            contender.load()
            self._ready(name, contender)
            yield contender
        finally:
            contender.close()
            self._sampler.release(contender)

    def release(self) -> None:
        """Thaw the residents."""
        for contender in self._resident.values():
            contender.freeze(False)
