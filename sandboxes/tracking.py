"""Knows which processes of a sandbox still live, so that all can be ended at once.

After stop() nothing that was started through it runs, and nothing new starts.
"""

from __future__ import annotations

import threading

from harness.errors import SandboxError
from sandboxes.job import Job, Process, Sandbox


class TrackingSandbox:
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
