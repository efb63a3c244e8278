"""A sandbox that runs nothing: it answers with what the test gave it."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandboxes.job import ExitFacts, Job, Sandbox, Status


def exit_facts(
    status: Status, output: str = "", code: int | None = None, *, signal: int | None = None
) -> ExitFacts:
    """Exit facts with unremarkable numbers."""
    return ExitFacts(
        status=status,
        code=code,
        signal=signal,
        wall_s=1.0,
        cpu_s=1.0,
        peak_memory_bytes=1 << 20,
        output=output,
    )


@dataclass
class FakeProcess:
    """TreeExit before it began; leaves `files` behind."""

    facts: ExitFacts
    files: Mapping[str, bytes]
    closed: bool = False
    channel: socket.socket = field(default_factory=socket.socket)

    def wait(self, timeout_s: float | None = None) -> ExitFacts | None:
        return self.facts

    def kill(self) -> None: ...

    def pause(self, paused: bool) -> float:
        return 0.0

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

    def prepare(self, job: Job) -> None: ...

    def settle(self) -> None: ...

    def close(self) -> None: ...


class Wrapped(NothingAhead):
    """A sandbox around another one, which starts nothing ahead: what waits would lack the changes."""

    def __init__(self, inner: Sandbox) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        return self.inner.name

    def facts(self) -> dict[str, str]:
        return self.inner.facts()

    def close(self) -> None:
        self.inner.close()


class FakeSandbox(NothingAhead):
    """Remembers jobs and processes; `files` map names in the scratch directory to contents.

    The control of a failed build, a project of ours, ends as `control` says.
    """

    name = "fake"

    def __init__(
        self,
        facts: ExitFacts | Sequence[ExitFacts],
        files: Mapping[str, bytes] | None = None,
        control: ExitFacts | None = None,
    ) -> None:
        """`facts`: of one job after the other, the last one of all that follow."""
        self._facts = list(facts) if isinstance(facts, Sequence) else [facts]
        self._files = files or {}
        self._control = exit_facts("ok", "", 0) if control is None else control
        self.jobs: list[Job] = []
        self.inputs: list[dict[str, str]] = []
        self.processes: list[FakeProcess] = []

    def facts(self) -> dict[str, str]:
        return {"protection": "none needed: nothing runs"}

    def start(self, job: Job) -> FakeProcess:
        self.jobs.append(job)
        self.inputs.append(
            {
                f"{name}/{path.relative_to(source)}": path.read_text(errors="replace")
                for name, source in job.inputs.items()
                for path in sorted(source.rglob("*"))
                if path.is_file()
            }
        )
        ours = any("liftbench_control" in name for name in self.inputs[-1])
        facts = self._control if ours else self._facts[0]
        if not ours and len(self._facts) > 1:
            self._facts.pop(0)
        self.processes.append(FakeProcess(facts, self._files))
        return self.processes[-1]
