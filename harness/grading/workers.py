"""The workers of one grader: settings, lifetime, shared memory, and the references timed beside a student."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from harness.builder.build import Built
from harness.builder.toolchain import Toolchain
from harness.errors import HarnessBug
from harness.judge.candidates import COMPILED, STUDENT, Candidates, TrustedWorkers, trusted_sources
from harness.judge.problem import Problem
from harness.judge.protocol import Numbers, numbers_of
from harness.judge.shared_memory import CudaTransport, HostTransport, Transport
from harness.judge.worker_client import Source, WorkerClient, WorkerPlace, Wrapper, worker_job
from harness.records import Protocol, Target, Task
from harness.suite.catalogue import LoadedTask
from sandboxes.job import Sandbox

WORKER_WALL_S = 300.0
CALL_WALL_S = 30.0
CUDA_WORKER_MEMORY_BYTES = 16 << 30
"""Host memory, CUDA's pinned buffers included; address space is not limited."""
_PR_SET_DUMPABLE = 4
_TRUSTED_WALL_S = 24 * 3600.0
_FLUSH_BYTES = 64 << 20
"""Written before a reveal in `full` on the CPU target: more than most last-level caches hold."""


@dataclass(frozen=True)
class GradeSettings:
    target: Target
    protocol: Protocol
    cache: Path
    build_wall_s: float = 600.0
    worker_wall_s: float = WORKER_WALL_S
    """Lifetime of a student's worker, frozen time excluded."""
    call_wall_s: float = CALL_WALL_S
    worker_memory_bytes: int = 6 << 30
    device: str | None = None
    """UUID of the workers' GPU; None on the CPU target, and where there is none."""
    no_device: str | None = None
    """Why this machine's GPU cannot be used; None where it can, or there is none."""
    sanitize: bool = False
    timed: bool = True
    emulate: bool = False
    """Check CUDA projects on the emulated GPU where no GPU can run them."""


def project_source(built: Built, task: Task) -> Source:
    """What a worker loads of a successful build. Raises HarnessBug where the build left no package."""
    if built.package is None:
        raise HarnessBug("a build that succeeded left no package")
    package = built.package / "__init__.py"
    libraries = sorted(built.package.glob("*.abi3.so"))
    namespace = libraries[0].name.removesuffix(".abi3.so") if libraries else ""
    return Source("project", package, task.module, task.op, jit=built.result.jit, namespace=namespace)


def _forbid_memory_access() -> None:
    """Make this process undumpable: it holds inputs and truth. Raises HarnessBug when refused."""
    if ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise HarnessBug("prctl(PR_SET_DUMPABLE, 0) was refused: the judge's memory would be open")


@contextmanager
def frozen(worker: WorkerClient) -> Iterator[None]:
    """Stop a worker's threads; frozen time does not count against its wall-clock limit."""
    worker.freeze(True)
    yield
    worker.freeze(False)


class Workers:
    """Starts and ends workers. A student's worker serves one grade; references outlive it."""

    def __init__(
        self,
        settings: GradeSettings,
        sandbox: Sandbox,
        toolchain: Toolchain,
        cpus: frozenset[int] | None,
        transport: Transport | None = None,
    ) -> None:
        """`cpus`: cores of the workers. `transport`: an open one that the caller closes; None opens one."""
        _forbid_memory_access()
        self._settings = settings
        self._sandbox = sandbox
        self._toolchain = toolchain
        self._cpus = cpus
        self._transport = transport
        self._owns_transport = transport is None
        self._trusted: TrustedWorkers | None = None

    @property
    def transport(self) -> Transport:
        """How memory is shared with workers; opened at first use. Raises DeviceError."""
        if self._transport is None:
            flush_bytes = _FLUSH_BYTES if self.numbers.flush else 0
            device = self._settings.device
            self._transport = HostTransport(flush_bytes) if device is None else CudaTransport(device)
        return self._transport

    @property
    def numbers(self) -> Numbers:
        return numbers_of(self._settings.protocol, on_device=self._settings.device is not None)

    def _place(self) -> WorkerPlace:
        """Where workers run. Raises HarnessBug without torch."""
        settings, root = self._settings, self._toolchain.torch_root
        if root is None:
            raise HarnessBug("a worker is wanted without torch")
        # PyTorch needs NumPy, which may lie elsewhere, to make tensors over a device's memory.
        sites = dict.fromkeys((root.parent, Path(np.__file__).parents[1]))
        return WorkerPlace(
            site=(root.parent,) if self._toolchain.in_image else tuple(sites),
            python=self._toolchain.python,
            in_image=self._toolchain.in_image,
            memory_bytes=CUDA_WORKER_MEMORY_BYTES if settings.device else settings.worker_memory_bytes,
            cpus=self._cpus,
            device=settings.device,
        )

    def start(
        self, source: Source, wall_s: float | None = None, under: Wrapper | None = None
    ) -> WorkerClient:
        """A worker that will load `source` and that the caller closes. Raises SandboxError.

        `under`: a program that it runs under, such as a sanitizer; then `wall_s` also limits each exchange.
        """
        wall_s = self._settings.worker_wall_s if wall_s is None else wall_s
        call_s = self._settings.call_wall_s if under is None else wall_s
        place = replace(self._place(), under=under)
        return WorkerClient(
            source, self._sandbox, place, wall_s=wall_s, call_s=call_s, transport=self.transport
        )

    def expect(self, source: Source) -> None:
        """Have a student's worker (`null`) prepared, or the first one of references: it imports torch."""
        if source.kind != "reference" or self._trusted is None:
            self._sandbox.prepare(worker_job(source, self._place(), self._settings.worker_wall_s))

    def trusted(self) -> TrustedWorkers:
        """Workers of references and the null project. Call only with the device's exclusive lock."""
        if self._trusted is None:
            self._trusted = TrustedWorkers(lambda source: self.start(source, _TRUSTED_WALL_S))
        return self._trusted

    def candidates(
        self, source: Source, loaded: LoadedTask, problem: Problem, student: WorkerClient | None
    ) -> Candidates:
        """The student and its opponents.

        `student`: a loaded worker that stays; None where each of its turns has a fresh process.
        """
        numbers = self.numbers
        sources = trusted_sources(loaded, problem, compiled=numbers.compiled)
        # torch.compile takes many seconds per shape, so that process stays in every protocol.
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
        if self._trusted is not None:
            self._trusted.close()
            self._trusted = None

    def close(self) -> None:
        self.discard_trusted()
        if self._transport is not None and self._owns_transport:
            self._transport.close()
            self._transport = None
