"""SandboxPool keeps warm processes, each for one job; StoppableSandbox ends everything at once."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue

from harness.errors import SandboxError
from sandboxes.job import Backend, Job, Process, Sandbox
from sandboxes.process import RunningProcess, WarmProcess


def shape(job: Job) -> Hashable:
    """Jobs of equal shape fit the same warm process: all but argv, inputs, deadline and output limit."""
    return (
        replace(job.limits, wall_s=0, output_bytes=0),
        (job.role, tuple(job.readable), tuple(sorted(job.environment.items()))),
        (job.device, job.cpus, job.preload, job.site),
    )


class SandboxPool:
    """A backend as a Sandbox, with warm processes by job shape."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name = backend.name
        self.python = backend.python
        """The interpreter that jobs use, by its path inside the sandbox."""
        self.image = backend.image
        """The files that jobs see; None where those are this machine's."""
        self._lock = threading.Condition()
        self._ready: dict[Hashable, list[WarmProcess]] = {}
        self._pending: dict[Hashable, int] = {}
        self._orders: SimpleQueue[Job | None] = SimpleQueue()
        self._starter: threading.Thread | None = None
        self._closed = False

    def facts(self) -> dict[str, str]:
        return self._backend.facts()

    def start(self, job: Job) -> RunningProcess:
        return RunningProcess(self._take(shape(job)) or self._spawn(job), job)

    def _spawn(self, job: Job) -> WarmProcess:
        try:
            return WarmProcess(self._backend.spawn(job))
        except OSError as error:
            raise SandboxError(f"a sandbox could not be made: {error}") from error

    def prepare(self, job: Job, count: int = 1) -> None:
        """Ensure that `count` warm processes of this shape exist or are being started. Returns at once."""
        key = shape(job)
        with self._lock:
            if self._closed:
                return
            if self._starter is None:
                # One long-lived thread: the parent-death signal is sent when the starting *thread* ends.
                self._starter = threading.Thread(target=self._serve_orders, daemon=True)
                self._starter.start()
            missing = count - len(self._ready.get(key, [])) - self._pending.get(key, 0)
            for _ in range(missing):
                self._pending[key] = self._pending.get(key, 0) + 1
                self._orders.put(job)

    def settle(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: not any(self._pending.values()))

    def _serve_orders(self) -> None:
        while (job := self._orders.get()) is not None:
            key, warm = shape(job), None
            with suppress(SandboxError):  # start() meets the same failure and reports it
                warm = self._spawn(job)
            with self._lock:
                self._pending[key] -= 1
                self._lock.notify_all()
                if warm is not None and not self._closed:
                    self._ready.setdefault(key, []).append(warm)
                    warm = None
            if warm is not None:
                warm.close()

    def _take(self, key: Hashable) -> WarmProcess | None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._ready.get(key) or not self._pending.get(key))
                if not self._ready.get(key):
                    return None
                warm = self._ready[key].pop()
            if warm.is_alive():
                return warm
            warm.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            left = [warm for waiting in self._ready.values() for warm in waiting]
            self._ready.clear()
            starter = self._starter
        for warm in left:
            warm.close()
        if starter is not None:
            self._orders.put(None)
            starter.join()
        self._backend.close()


class StoppableSandbox:
    """Wraps a sandbox: stop() kills all of its processes and prevents new ones."""

    def __init__(self, inner: Sandbox) -> None:
        self._inner = inner
        self.name = inner.name
        self._live: list[Process] = []
        self._lock = threading.Lock()
        self._stopped = False

    def facts(self) -> dict[str, str]:
        return self._inner.facts()

    def start(self, job: Job) -> Process:
        """Start a process. Raises SandboxError, also after stop()."""
        if not self._stopped:
            process = self._inner.start(job)  # without the lock: it may take seconds
            with self._lock:
                if not self._stopped:
                    self._live = [*(p for p in self._live if p.wait(0) is None), process]
                    return process
            process.close()
        raise SandboxError("the run was stopped")

    def prepare(self, job: Job, count: int = 1) -> None:
        if not self._stopped:
            self._inner.prepare(job, count)

    def settle(self) -> None:
        self._inner.settle()

    def close(self) -> None:
        self._inner.close()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._live:
                process.kill()
        self.close()
