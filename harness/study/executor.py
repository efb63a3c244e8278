"""Maps a function over trials, tasks or test cases in threads, which mostly wait for other processes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_POLL_S = 0.2
"""While waiting for results, so that Ctrl-C is noticed."""


class LocalExecutor:
    """At most `workers` daemon threads; items are taken in order, and none after a failure."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._abandoned = threading.Event()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Results in the order in which they finish; the first exception is raised."""
        todo: queue.SimpleQueue[Item] = queue.SimpleQueue()
        for item in items:
            todo.put(item)
        count = todo.qsize()
        done: queue.SimpleQueue[tuple[object, BaseException | None]] = queue.SimpleQueue()
        over = threading.Event()

        def work() -> None:
            while not self._abandoned.is_set():
                try:
                    item = todo.get_nowait()
                except queue.Empty:
                    # Processes die with the thread that started them (prctl PDEATHSIG), and a worker that
                    # this thread started may still serve another thread's trial.
                    over.wait()
                    return
                try:
                    done.put((function(item), None))
                except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
                    self._abandoned.set()
                    done.put((None, error))
                    return

        for _ in range(min(self._workers, count)):
            threading.Thread(target=work, daemon=True).start()
        try:
            while count:
                try:
                    result, error = done.get(timeout=_POLL_S)
                except queue.Empty:
                    if self._abandoned.is_set() and done.empty():
                        return
                    continue
                count -= 1
                if error is not None:
                    raise error
                yield result  # type: ignore[misc]
        finally:
            over.set()

    def abandon(self) -> None:
        """Start nothing more, and do not wait for running ones."""
        self._abandoned.set()
