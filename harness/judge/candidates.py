"""The candidates timed on a problem, and which of their processes exist at a time.

Resident candidates are loaded once and frozen between their turns; others are started for a turn and killed
after it. No other process of a student's lives during a turn unless it is frozen in host memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from harness.errors import HarnessBug, InfraError
from harness.judge.problem import Problem
from harness.judge.reveals import Sampler
from harness.judge.worker_client import Source, WorkerClient
from harness.suite.catalogue import LoadedTask

STUDENT = "student"
EAGER = "eager"
NULL = "null"
COMPILED = "compile"


def reference_source(loaded: LoadedTask) -> Source:
    return Source("reference", loaded.reference_path, "liftbench_reference", "reference")


def trusted_sources(loaded: LoadedTask, problem: Problem, *, compiled: bool) -> dict[str, Source]:
    """What is timed beside a student: `eager`, `library` where the task names a fused op, `compile` where
    asked for, and on a device the null project, last."""
    eager = reference_source(loaded)
    found = {EAGER: eager}
    if problem.has_library:
        found["library"] = replace(eager, function="library")
    if compiled:
        found[COMPILED] = replace(eager, jit=True, compiled=True)
    return found if problem.device.type == "cpu" else {**found, NULL: Source("null")}


def not_compiled(name: str, error: HarnessBug) -> str:
    """The note where this machine or op cannot compile at run time. Raises the error of any other
    candidate."""
    if name != COMPILED:
        raise error
    return f"torch.compile as an opponent: not measured: {error}"


class TrustedWorkers:
    """Workers that run only our code, one per name, kept between grades."""

    def __init__(self, start: Callable[[Source], WorkerClient]) -> None:
        self._start = start
        self._workers: dict[str, WorkerClient] = {}

    def worker(self, name: str, source: Source) -> WorkerClient:
        worker = self._workers.get(name)
        if worker is not None:
            try:
                worker.reload(source)
                return worker
            except InfraError:  # no longer usable: start another
                self._workers.pop(name).close()
        worker = self._start(source)
        self._workers[name] = worker
        worker.load()
        return worker

    def workers(
        self, sources: dict[str, Source], names: Iterable[str]
    ) -> tuple[dict[str, WorkerClient], list[str]]:
        found, notes = {}, []
        for name in names:
            try:
                found[name] = self.worker(name, sources[name])
            except HarnessBug as error:
                notes.append(not_compiled(name, error))
        return found, notes

    def close(self) -> None:
        while self._workers:
            self._workers.popitem()[1].close()


@dataclass(frozen=True)
class Candidates:
    start: dict[str, Callable[[], WorkerClient]]
    """Starts a worker that is not loaded yet. `student` first; `null` last, on a device only."""
    resident: dict[str, WorkerClient]
    """Those that are loaded already. The student may be dismissed and brought back."""
    notes: tuple[str, ...] = ()

    def dismiss(self) -> None:
        student = self.resident.pop(STUDENT, None)
        if student is not None:
            student.close()


class Schedule:
    def __init__(self, sampler: Sampler, candidates: Candidates) -> None:
        self._sampler = sampler
        self._start = candidates.start
        self._resident = candidates.resident
        self.notes = list(candidates.notes)
        self.pace_us: dict[str, float] = {}

    def size_batches(self) -> None:
        """Let the sampler measure what a reveal costs, in a process of its own where none is resident."""
        name = NULL if NULL in self._start else EAGER
        resident = self._resident.get(name)
        if resident is not None:
            self._sampler.size_batches(resident)
            return
        with self._start[name]() as client:
            client.load()
            self._sampler.size_batches(client)

    def prepare(self, warm_up_s: float | None = None) -> None:
        for name, client in list(self._resident.items()):
            try:
                self._warm_up(name, client, warm_up_s)
            except HarnessBug as error:
                self.notes.append(not_compiled(name, error))
                del self._resident[name], self._start[name]
                continue
            client.freeze(True)

    def bring_student(self) -> None:
        client = self._resident[STUDENT] = self._start[STUDENT]()
        client.load()
        self._warm_up(STUDENT, client)
        client.freeze(True)

    def _warm_up(self, name: str, client: WorkerClient, warm_up_s: float | None = None) -> None:
        self._sampler.plan(client, trusted=name != STUDENT)
        usual_s = self._sampler.numbers.warm_up_s if warm_up_s is None else warm_up_s
        self.observe(name, self._sampler.warm_up(client, 0.0 if name == NULL else usual_s))

    def observe(self, name: str, pace_us: float) -> None:
        """The least counts: a candidate that is slow only while it warms up would otherwise get small
        batches."""
        self.pace_us[name] = min(pace_us, self.pace_us.get(name, math.inf))

    @contextmanager
    def turn(self, name: str) -> Iterator[WorkerClient]:
        """The candidate, warmed up and running: thawed for the turn, or in a process of its own."""
        resident = self._resident.get(name)
        with self.fresh(name) if resident is None else resident.thawed() as client:
            yield client

    @contextmanager
    def fresh(self, name: str) -> Iterator[WorkerClient]:
        client = self._start[name]()
        try:
            with client:
                client.load()
                self._warm_up(name, client)
                yield client
        finally:
            self._sampler.release(client)

    def release(self) -> None:
        for client in self._resident.values():
            client.freeze(False)
