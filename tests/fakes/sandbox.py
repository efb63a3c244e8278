"""A sandbox that runs nothing: it answers with what the test gave it."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandboxes.job import ExitFacts, Job, Status


def exit_facts(status: Status, output: str = "", code: int | None = None) -> ExitFacts:
    """Exit facts with unremarkable numbers."""
    return ExitFacts(
        status=status,
        code=code,
        signal=None,
        wall_s=1.0,
        cpu_s=1.0,
        peak_memory_bytes=1 << 20,
        output=output,
    )


@dataclass
class FakeProcess:
    """Ended before it began; leaves `files` behind."""

    facts: ExitFacts
    files: Mapping[str, bytes]
    closed: bool = False
    channel: socket.socket = field(default_factory=socket.socket)

    def wait(self, timeout_s: float | None = None) -> ExitFacts | None:
        return self.facts

    def kill(self) -> None: ...

    def pause(self, paused: bool) -> None: ...

    def collect(self, allow: Iterable[str], destination: Path) -> list[Path]:
        wanted = [name for name in allow if name in self.files]
        for name in wanted:
            (destination / name).parent.mkdir(parents=True, exist_ok=True)
            (destination / name).write_bytes(self.files[name])
        return [destination / name for name in wanted]

    def close(self) -> None:
        self.channel.close()
        self.closed = True


class NothingAhead:
    """The half of a sandbox that starts cages ahead: it starts none."""

    def prepare(self, job: Job, count: int = 1) -> None: ...

    def settle(self) -> None: ...

    def close(self) -> None: ...


class FakeSandbox(NothingAhead):
    """Remembers jobs and processes; `files` map names in the scratch directory to contents."""

    name = "fake"

    def __init__(self, facts: ExitFacts, files: Mapping[str, bytes] | None = None) -> None:
        self._facts = facts
        self._files = files or {}
        self.jobs: list[Job] = []
        self.inputs: list[dict[str, str]] = []
        self.processes: list[FakeProcess] = []

    def facts(self) -> dict[str, str]:
        return {"protection": "none needed: nothing runs"}

    def start(self, job: Job) -> FakeProcess:
        self.jobs.append(job)
        self.inputs.append(
            {
                f"{name}/{path.relative_to(source)}": path.read_text()
                for name, source in job.inputs.items()
                for path in sorted(source.rglob("*"))
                if path.is_file()
            }
        )
        self.processes.append(FakeProcess(self._facts, self._files))
        return self.processes[-1]
