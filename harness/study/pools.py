"""Trials in threads: they wait for models, compilers and workers, which run elsewhere.

At most `workers` jobs run at once; jobs start in order; after a failure none starts.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class LocalExecutor:
    """Daemon threads over one queue."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._abandoned = threading.Event()

    def map(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """Results in the order in which they finish; a job's exception is raised here."""
        todo: queue.SimpleQueue[Job] = queue.SimpleQueue()
        count = 0
        for job in jobs:
            todo.put(job)
            count += 1
        done: queue.SimpleQueue[tuple[Result | None, BaseException | None, bool]] = queue.SimpleQueue()
        over = threading.Event()

        def work() -> None:
            while not self._abandoned.is_set():
                try:
                    job = todo.get_nowait()
                except queue.Empty:
                    # Processes die with the thread that started them (prctl PDEATHSIG), and a
                    # worker that this one started may still serve another thread's trial.
                    over.wait()
                    return
                try:
                    done.put((function(job), None, True))
                except BaseException as error:  # noqa: BLE001 - handed to the caller, not swallowed
                    self._abandoned.set()
                    done.put((None, error, False))
                    return

        for _ in range(min(self._workers, count)):
            threading.Thread(target=work, daemon=True).start()
        try:
            yield from self._collect(done, count)
        finally:
            over.set()

    def _collect(
        self, done: queue.SimpleQueue[tuple[Result | None, BaseException | None, bool]], count: int
    ) -> Iterator[Result]:
        for _ in range(count):
            # A timeout, so that Ctrl-C is noticed while waiting.
            while True:
                try:
                    result, error, ok = done.get(timeout=0.2)
                    break
                except queue.Empty:
                    if self._abandoned.is_set() and done.empty():
                        return
            if error is not None:
                raise error
            if ok:
                yield result  # type: ignore[misc]

    def abandon(self) -> None:
        """Start nothing more."""
        self._abandoned.set()
