"""What a driver and its grader processes send each other: one JSON record per line."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from harness import __version__
from harness.errors import (
    DeviceError,
    DeviceLost,
    GraderRefused,
    HarnessBug,
    InfraError,
    SandboxError,
    StorageError,
    UsageError,
)
from harness.files import write_atomically
from harness.outcome import Cause
from harness.records import Finding, Grade, MachineFacts, Project, Protocol, Record, Target
from harness.suite.catalogue import LoadedTask, load_task

ORDERS_PER_GPU: Final = 4
"""With two under way, GPUs would wait for long builds."""


class HostSpec(Record):
    """What a grader process is made of."""

    target: Target
    protocol: Protocol
    sandbox: str
    cache: str
    emulate: bool = True
    timed: bool = True
    gpu: str | None = None
    """UUID; None: the first GPU, or none."""
    index: int = 0
    """Of that GPU among `gpus`, which decides its cores."""
    gpus: int = 1
    at_once: int = 2
    """Orders under way: others are built while one runs."""
    builds_only: bool = False
    liftbench: str = __version__
    """Of the driver."""


class HostFacts(Record):
    """What a grader process says of itself before it gets work."""

    node: str
    grader_version: str
    machine: MachineFacts
    toolchain: dict[str, str]
    sandbox: str
    sandbox_facts: dict[str, str]
    device_bytes: int | None


class TaskFiles(Record):
    """A task by content: a node needs no copy of its folder."""

    level: str
    name: str
    digest: str
    files: dict[str, str]

    @classmethod
    def of(cls, loaded: LoadedTask) -> TaskFiles:
        folder = loaded.directory
        files = {name: (folder / name).read_text() for name in ("task.toml", "reference.py")}
        return cls(level=folder.parent.name, name=folder.name, digest=loaded.task.digest, files=files)

    def load(self, root: Path) -> LoadedTask:
        """The task, written below `root`. Raises UsageError; HarnessBug if its digest is another."""
        folder = root / self.digest[:16] / self.level / self.name
        for name, text in self.files.items():
            write_atomically(folder / name, text)  # other processes share the folder
        loaded = load_task(folder)
        if loaded.task.digest != self.digest:
            raise HarnessBug(f"{loaded.task.id} changed on its way to a grader process")
        return loaded


class Order(Record):
    """One thing to do."""

    number: int
    what: Literal["build", "grade", "no_project"]
    task: TaskFiles
    project: Project | None = None
    finding: Finding | None = None
    """Why there is no project."""
    lost_a_device: bool = False
    """A device was lost under the project before."""
    package: str | None = None
    """A build from elsewhere: a tar archive in base64."""


class Failure(Record):
    """An infrastructure failure, as an exception on the other side."""

    cause: Cause
    message: str
    project: str | None = None
    """Of a lost device."""
    refused: bool = False
    """Trying again is useless."""

    @classmethod
    def of(cls, error: InfraError | OSError | UsageError) -> Failure:
        refused = isinstance(error, GraderRefused | UsageError)
        kind = GraderRefused if refused else HarnessBug
        cause = error.cause if isinstance(error, InfraError) else kind.cause
        project = error.project if isinstance(error, DeviceLost) else None
        return cls(cause=cause, message=f"{error}", project=project, refused=refused)

    def error(self) -> InfraError:
        if self.refused:
            return GraderRefused(self.message)
        if self.project is not None:
            return DeviceLost(self.message, self.project)
        kinds = {kind.cause: kind for kind in (SandboxError, StorageError, DeviceError)}
        return kinds.get(self.cause, HarnessBug)(self.message)


class Event(Record):
    """What a grader process says; one without content only shows that it lives."""

    order: int | None = None
    facts: HostFacts | None = None
    stage: str | None = None
    done: bool = False
    """The order's last event."""
    grade: Grade | None = None
    log: str | None = None
    package: str | None = None
    """The finished build; None where there is none to keep."""
    failure: Failure | None = None
