"""The workers that run only our code: references and the null project.

Owns: their lives; they are kept from one grade to the next, since nothing of a student ever runs in
them. Does not own: the student's worker. Invariant: after any trouble they are thrown away.
"""

from __future__ import annotations

from collections.abc import Callable

from harness.catalogue import LoadedTask
from harness.errors import InfraError
from harness.judge.contender import Contender
from harness.judge.problem import Problem
from harness.judge.worker_job import Source

Start = Callable[[Source], Contender]


class TrustedWorkers:
    """One worker per reference name and one for the null project."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._workers: dict[str, Contender] = {}

    def _worker(self, name: str, source: Source) -> Contender:
        worker = self._workers.get(name)
        if worker is not None:
            try:
                worker.reload(source)
                return worker
            except InfraError:  # It is not usable any more: start another.
                self._workers.pop(name).close()
        worker = self._start(source)
        self._workers[name] = worker
        worker.load()
        return worker

    def null(self) -> Contender:
        """The null project: takes the same path and does nothing."""
        return self._worker("null", Source("null"))

    def references(self, loaded: LoadedTask, problem: Problem) -> dict[str, Contender]:
        """`eager`, and `library` where the task names a fused op, loaded with this task."""

        def source(function: str) -> Source:
            return Source("reference", loaded.reference_path, "liftbench_reference", function)

        found = {"eager": self._worker("eager", source("reference"))}
        if problem.has_library:
            found["library"] = self._worker("library", source("library"))
        return found

    def close(self) -> None:
        """End them all."""
        while self._workers:
            self._workers.popitem()[1].close()
