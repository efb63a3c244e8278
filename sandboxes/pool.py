"""A backend as a sandbox: every job in a cage of its own, which may have been started ahead.

A cage is handed out once and never comes back, and no byte of a student's was in it before.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Hashable
from contextlib import suppress
from queue import SimpleQueue

from harness.errors import SandboxError
from sandboxes.job import Backend, Job, Process, Sandbox
from sandboxes.process import RunningProcess, WarmProcess


def shape(job: Job) -> Hashable:
    """What two jobs must have in common to fit the same cage: all but argv, inputs and deadlines."""
    limits = job.limits
    return (
        job.role,
        (limits.cpu_s, limits.memory_bytes, limits.file_bytes, limits.processes),
        (limits.scratch_bytes, limits.scratch_files),
        tuple(job.readable),
        tuple(sorted(job.environment.items())),
        job.device,
        job.cpus,
        job.preload,
        job.site,
    )


class SandboxPool:
    """See the module docstring."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name = backend.name
        self.python = backend.python
        """The interpreter that jobs use, as they see it."""
        self.image = backend.image
        """The files that jobs see; None where those are this machine's."""
        self._lock = threading.Condition()
        self._ready: dict[Hashable, list[WarmProcess]] = {}
        self._coming: dict[Hashable, int] = {}
        self._orders: SimpleQueue[Job | None] = SimpleQueue()
        self._starter: threading.Thread | None = None
        self._closed = False

    def facts(self) -> dict[str, str]:
        """The backend's."""
        return self._backend.facts()

    def start(self, job: Job) -> RunningProcess:
        """Start a process, in a cage that stands by where there is one. Raises SandboxError."""
        standing = self._take(shape(job)) or self._made(job)
        return RunningProcess(standing, job)

    def _made(self, job: Job) -> WarmProcess:
        """Raises SandboxError, for a full disk too."""
        try:
            return WarmProcess(self._backend.spawn(job))
        except OSError as error:
            raise SandboxError(f"a sandbox could not be made: {error}") from error

    def prepare(self, job: Job, count: int = 1) -> None:
        """See that `count` cages for jobs of this shape stand by or are on their way. Returns at once."""
        key = shape(job)
        with self._lock:
            if self._closed:
                return
            if self._starter is None:
                # One that lives as long as we do: what a thread has started dies with it.
                self._starter = threading.Thread(target=self._make, daemon=True)
                self._starter.start()
            missing = count - len(self._ready.get(key, [])) - self._coming.get(key, 0)
            for _ in range(missing):
                self._coming[key] = self._coming.get(key, 0) + 1
                self._orders.put(job)

    def settle(self) -> None:
        """Return when nothing is being prepared any more."""
        with self._lock:
            self._lock.wait_for(lambda: not any(self._coming.values()))

    def _make(self) -> None:
        while (job := self._orders.get()) is not None:
            key, standing = shape(job), None
            with suppress(SandboxError):  # start() will meet the same trouble and tell it
                standing = self._made(job)
            with self._lock:
                self._coming[key] -= 1
                self._lock.notify_all()
                if standing is not None and not self._closed:
                    self._ready.setdefault(key, []).append(standing)
                    standing = None
            if standing is not None:
                standing.close()

    def _take(self, key: Hashable) -> WarmProcess | None:
        """One that still lives, or that is on its way."""
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._ready.get(key) or not self._coming.get(key))
                if not self._ready.get(key):
                    return None
                standing = self._ready[key].pop()
            if _lives(standing):
                return standing
            standing.close()

    def close(self) -> None:
        """End what stands by; nothing is prepared afterwards. Jobs that run are not touched."""
        with self._lock:
            self._closed = True
            left = [standing for waiting in self._ready.values() for standing in waiting]
            self._ready.clear()
            starter = self._starter
        for standing in left:
            standing.close()
        if starter is not None:
            self._orders.put(None)
            starter.join()
        self._backend.close()


def _lives(standing: WarmProcess) -> bool:
    """Nothing was said and nobody hung up: inside.py waits for its order."""
    try:
        standing.cage.channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class StoppableSandbox:
    """Another sandbox, with an off switch."""

    def __init__(self, inner: Sandbox) -> None:
        self._inner = inner
        self.name = inner.name
        self._live: list[Process] = []
        self._lock = threading.Lock()
        self._stopped = False

    def facts(self) -> dict[str, str]:
        """The inner sandbox's."""
        return self._inner.facts()

    def start(self, job: Job) -> Process:
        """Start a process, unless stopped. Raises SandboxError."""
        if not self._stopped:
            process = self._inner.start(job)  # may take seconds: several start at once
            with self._lock:
                if not self._stopped:
                    self._live = [*(p for p in self._live if p.wait(0) is None), process]
                    return process
            process.close()
        raise SandboxError("the run was stopped")

    def prepare(self, job: Job, count: int = 1) -> None:
        """Start ahead, unless stopped."""
        if not self._stopped:
            self._inner.prepare(job, count)

    def settle(self) -> None:
        """Return when nothing is being prepared any more."""
        self._inner.settle()

    def close(self) -> None:
        """End what was prepared."""
        self._inner.close()

    def stop(self) -> None:
        """Kill everything; nothing starts afterwards."""
        with self._lock:
            self._stopped = True
            for process in self._live:
                process.kill()
        self.close()
