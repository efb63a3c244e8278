"""A backend as a Sandbox: warm processes, each for one job, and an end of everything at once."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue

from harness.errors import SandboxError
from sandboxes.job import Backend, Job
from sandboxes.supervisor import RunningProcess, WarmProcess


def shape(job: Job) -> Hashable:
    """Jobs of equal shape fit the same warm process: all but argv, inputs, deadline and output limit."""
    return (
        replace(job.limits, wall_s=0, output_bytes=0),
        (job.role, tuple(job.readable), tuple(sorted(job.environment.items()))),
        (job.device, job.cpus, job.preload, job.site),
    )


class SandboxPool:
    """Keeps warm processes by job shape. stop() kills all of its processes and prevents new ones."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name = backend.name
        self.python = backend.python
        self.image = backend.image
        self._lock = threading.Condition()
        self._ready: dict[Hashable, WarmProcess] = {}
        self._pending: set[Hashable] = set()
        self._orders: SimpleQueue[Job | None] = SimpleQueue()
        self._starter: threading.Thread | None = None
        self._live: list[RunningProcess] = []
        self._closed = False

    def facts(self) -> dict[str, str]:
        return self._backend.facts()

    def start(self, job: Job) -> RunningProcess:
        """Start a process. Raises SandboxError, also after close() and stop()."""
        if not self._closed:
            process = RunningProcess(self._take(shape(job)) or self._spawn(job), job)  # may take seconds
            with self._lock:
                if not self._closed:
                    self._live = [*(p for p in self._live if p.wait(0) is None), process]
                    return process
            process.close()
        raise SandboxError("the run was stopped")

    def _spawn(self, job: Job) -> WarmProcess:
        try:
            return WarmProcess(self._backend.spawn(job))
        except OSError as error:
            raise SandboxError(f"a sandbox could not be made: {error}") from error

    def prepare(self, job: Job) -> None:
        with self._lock:
            key = shape(job)
            if self._closed or key in self._pending or key in self._ready:
                return
            if self._starter is None:
                # One long-lived thread: the parent-death signal is sent when the starting *thread* ends.
                self._starter = threading.Thread(target=self._serve_orders, daemon=True)
                self._starter.start()
            self._pending.add(key)
            self._orders.put(job)

    def settle(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: not self._pending)

    def _serve_orders(self) -> None:
        while (job := self._orders.get()) is not None:
            key, warm = shape(job), None
            with suppress(SandboxError):  # start() meets the same failure and reports it
                warm = self._spawn(job)
            with self._lock:
                self._pending.remove(key)
                self._lock.notify_all()
                if warm is not None and not self._closed:
                    self._ready[key] = warm
                    warm = None
            if warm is not None:
                warm.close()

    def _take(self, key: Hashable) -> WarmProcess | None:
        with self._lock:
            self._lock.wait_for(lambda: key in self._ready or key not in self._pending)
            warm = self._ready.pop(key, None)
        if warm is not None and not warm.is_alive():
            warm.close()
            return None
        return warm

    def stop(self) -> None:
        """Kill running jobs too."""
        with self._lock:
            self._closed = True
            live = self._live
        for process in live:
            process.kill()
        self.close()

    def close(self) -> None:
        """End warm processes; nothing can be started afterwards. Running jobs are not affected."""
        with self._lock:
            self._closed = True
            left = list(self._ready.values())
            self._ready.clear()
            starter = self._starter
        for warm in left:
            warm.close()
        if starter is not None:
            self._orders.put(None)
            starter.join()
        self._backend.close()
