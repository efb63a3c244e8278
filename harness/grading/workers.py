"""The workers of one grader: where they run, how they share memory, who is timed beside a student.

A worker of a student's serves one trial; only workers that run our own code outlive one.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.builder.toolchain import Toolchain
from harness.errors import HarnessBug
from harness.records import Protocol, Target, Task
from harness.suite.catalogue import LoadedTask
from sandboxes.job import Sandbox

if TYPE_CHECKING:
    from harness.builder.build import Built
    from harness.judge.candidates import Candidates, TrustedWorkers
    from harness.judge.problem import Problem
    from harness.judge.protocol import Numbers
    from harness.judge.transport import Transport
    from harness.judge.worker_client import WorkerClient
    from harness.judge.worker_job import Source, WorkerPlace, Wrapper

BUILD_WALL_S = 600.0
WORKER_WALL_S = 300.0
CALL_WALL_S = 30.0
WORKER_MEMORY_BYTES = 6 << 30
CUDA_WORKER_MEMORY_BYTES = 16 << 30
"""Of host memory: CUDA's pinned buffers count. Of address space it may reserve any amount."""
_PR_SET_DUMPABLE = 4
_TRUSTED_WALL_S = 24 * 3600.0
_FLUSH_BYTES = 64 << 20
"""Written before a reveal in `full` on the CPU target: above most last-level caches' share of one machine."""


@dataclass(frozen=True)
class GradeSettings:
    """What a grader is told."""

    target: Target
    protocol: Protocol
    cache: Path
    """Builds and locks."""
    build_wall_s: float = BUILD_WALL_S
    worker_wall_s: float = WORKER_WALL_S
    """Of a student's worker, frozen time excluded."""
    call_wall_s: float = CALL_WALL_S
    """Of one exchange with a worker."""
    worker_memory_bytes: int = WORKER_MEMORY_BYTES
    device: str | None = None
    """UUID of the GPU that workers get; None on the CPU target, and where there is none."""
    no_device: str | None = None
    """Why the GPU that this machine has cannot be used; None where there is none, or it can."""
    sanitize: bool = False
    """Run compute-sanitizer's tools on correct projects."""
    timed: bool = True
    """Whether correct projects are timed; self-tests of tasks need no speed."""


def project_source(built: Built, task: Task) -> Source:
    """What a worker loads of a build that succeeded. Raises HarnessBug where it left no package."""
    from harness.judge.worker_job import Source

    if built.directory is None or built.result.variant is None:
        raise HarnessBug("a build that succeeded left no package")
    package = built.directory / built.result.variant / "__init__.py"
    libraries = sorted(package.parent.glob("*.abi3.so"))
    namespace = libraries[0].name.removesuffix(".abi3.so") if libraries else ""
    return Source("project", package, task.module, task.op, jit=built.result.jit, namespace=namespace)


def _close_memory() -> None:
    """Nobody may read the judge's memory, where inputs and truth are. Raises HarnessBug when refused."""
    if ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise HarnessBug("prctl(PR_SET_DUMPABLE, 0) was refused: the judge's memory would be open")


class Workers:
    """Starts workers; close it when done."""

    def __init__(
        self,
        settings: GradeSettings,
        sandbox: Sandbox,
        toolchain: Toolchain,
        cpus: frozenset[int] | None,
        transport: Transport | None = None,
    ) -> None:
        """`cpus`: the cores that contenders may use; `transport`: one that is open already, the caller's."""
        _close_memory()
        self._settings = settings
        self._sandbox = sandbox
        self._toolchain = toolchain
        self._cpus = cpus
        self._transport = transport
        self._owns_transport = transport is None
        self._trusted: TrustedWorkers | None = None

    @property
    def transport(self) -> Transport:
        """How this target shares memory; opened at first use. Raises DeviceError."""
        if self._transport is None:
            self._transport = self._open_transport()
        return self._transport

    def _open_transport(self) -> Transport:
        from harness.judge.transport import HostTransport

        settings = self._settings
        if settings.device is None:
            return HostTransport(_FLUSH_BYTES if self.numbers.flush else 0)
        from harness.judge.cuda_transport import open_cuda

        return open_cuda(settings.device)

    @property
    def numbers(self) -> Numbers:
        """How much is measured."""
        from harness.judge.protocol import numbers_of

        return numbers_of(self._settings.protocol, on_device=self._settings.device is not None)

    def place(self) -> WorkerPlace:
        """Where workers run. Raises HarnessBug without torch."""
        from harness.judge.worker_job import WorkerPlace

        settings, root = self._settings, self._toolchain.torch_root
        if root is None:
            raise HarnessBug("a worker is wanted without torch")
        on_cpu = settings.target == "cpu"
        return WorkerPlace(
            site=(root.parent,),
            python=self._toolchain.python,
            in_image=self._toolchain.in_image,
            memory_bytes=settings.worker_memory_bytes if on_cpu else CUDA_WORKER_MEMORY_BYTES,
            cpus=self._cpus,
            device=settings.device,
        )

    def start(self, source: Source, wall_s: float | None = None) -> WorkerClient:
        """A worker that will load `source`; a student's may live for `wall_s`. Raises SandboxError."""
        from harness.judge.worker_client import WorkerClient

        settings = self._settings
        return WorkerClient(
            source,
            self._sandbox,
            self.place(),
            wall_s=settings.worker_wall_s if wall_s is None else wall_s,
            call_s=settings.call_wall_s,
            transport=self.transport,
        )

    def start_under(self, source: Source, under: Wrapper, wall_s: float) -> WorkerClient:
        """A worker under another program, which may make every exchange slow. Raises SandboxError."""
        from harness.judge.worker_client import WorkerClient

        place = replace(self.place(), under=under)
        return WorkerClient(
            source, self._sandbox, place, wall_s=wall_s, call_s=wall_s, transport=self.transport
        )

    def expect(self) -> None:
        """A student's worker will be wanted: it can import torch while compilers run."""
        from harness.judge.worker_job import Source, worker_job

        source = Source("null")  # as a project's, but for what it loads
        self._sandbox.prepare(worker_job(source, self.place(), self._settings.worker_wall_s))

    def trusted(self) -> TrustedWorkers:
        """References and the null project. Only called while the machine is held exclusively."""
        from harness.judge.candidates import TrustedWorkers

        if self._trusted is None:
            self._trusted = TrustedWorkers(lambda source: self.start(source, _TRUSTED_WALL_S))
        return self._trusted

    def contenders(
        self, source: Source, loaded: LoadedTask, problem: Problem, student: WorkerClient | None
    ) -> Candidates:
        """Who is timed, and which of them are resident.

        `student`: a loaded worker that stays; None where each of its turns is in a process of its own.
        """
        from harness.judge.candidates import COMPILED, STUDENT, Candidates, trusted_sources

        numbers = self.numbers
        sources = trusted_sources(loaded, problem, compiled=numbers.compiled)
        # torch.compile takes many seconds a shape: that process stays, whatever the protocol.
        kept = [name for name in sources if not numbers.fresh_processes or name == COMPILED]
        resident, notes = self.trusted().workers(sources, kept)
        start = {
            name: partial(self.start, one)
            for name, one in sources.items()
            if name in resident or name not in kept
        }
        if student is not None:
            resident = {STUDENT: student, **resident}
        return Candidates({STUDENT: partial(self.start, source), **start}, resident, tuple(notes))

    def discard_trusted(self) -> None:
        """Start afresh next time."""
        if self._trusted is not None:
            self._trusted.close()
            self._trusted = None

    def close(self) -> None:
        """End the workers that are kept between grades."""
        self.discard_trusted()
        if self._transport is not None and self._owns_transport:
            self._transport.close()
            self._transport = None
