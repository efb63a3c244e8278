"""The workers that run only our code: references and the null project.

After any trouble they are thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from harness.errors import HarnessBug, InfraError
from harness.judge.candidates import COMPILED, NULL, not_compiled
from harness.judge.problem import Problem
from harness.judge.worker_client import WorkerClient
from harness.judge.worker_job import Source
from harness.suite.catalogue import LoadedTask

Start = Callable[[Source], WorkerClient]


def trusted_sources(loaded: LoadedTask, problem: Problem, *, compiled: bool) -> dict[str, Source]:
    """What is timed beside a student: `eager`, `library` where the task names a fused op, `compile` where
    asked for, and the null project, last."""

    def source(function: str, compiled: bool = False) -> Source:
        path = loaded.reference_path
        return Source("reference", path, "liftbench_reference", function, jit=compiled, compiled=compiled)

    found = {"eager": source("reference")}
    if problem.has_library:
        found["library"] = source("library")
    if compiled:
        found[COMPILED] = source("reference", compiled=True)
    return {**found, NULL: Source("null")}


class TrustedWorkers:
    """One worker per name."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._workers: dict[str, WorkerClient] = {}

    def worker(self, name: str, source: Source) -> WorkerClient:
        """The worker of that name, loaded with `source`. Raises SandboxError, HarnessBug."""
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

    def workers(
        self, sources: dict[str, Source], names: Iterable[str]
    ) -> tuple[dict[str, WorkerClient], list[str]]:
        """(those of `names`, notes about `compile` where this machine cannot have it)."""
        found, notes = {}, []
        for name in names:
            try:
                found[name] = self.worker(name, sources[name])
            except HarnessBug as error:
                if name != COMPILED:
                    raise
                notes.append(not_compiled(error))
        return found, notes

    def close(self) -> None:
        """End them all."""
        while self._workers:
            self._workers.popitem()[1].close()
