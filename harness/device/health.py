"""Whether the machine can grade the next project fairly, and who is to blame when it cannot.

A project is blamed only for a device that was healthy directly before it ran, and not the first time; it is
graded at most twice.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from harness.builder.compiler_slots import free_bytes, grown_bytes
from harness.errors import DeviceError, DeviceLost, SandboxError, StorageError
from harness.outcome import Cause, Verdict
from harness.records import Finding, Grade
from sandboxes.gpu import watch_gpu
from sandboxes.nvml import Nvml, NvmlError, XidWatch, faulted, open_nvml

FREE_MEMORY_BYTES: Final = 1 << 30
"""A worker that has imported torch and its arenas take 0.5 to 0.8 GiB (our choice)."""
FREE_DISK_BYTES: Final = 1 << 30
"""A worker's scratch directory may hold 256 MiB, a build a few hundred (our choice)."""
SLOWEST: Final = 1.5
"""Most of the known kernel's first time in this session (our choice): boost explains 10 to 30 %."""
LEAVING_S: Final = 5.0
"""How long a driver may take to tear down the context of a killed process (our choice)."""
_POLL_S = 0.1
RESET: Final = "reset it (nvidia-smi --gpu-reset) or reboot before grading goes on"
_TORCH_ERRORS: Final = ("AcceleratorError", "OutOfMemoryError")
_SUSPICIOUS: Final = {Verdict.CRASHED, Verdict.TIMED_OUT}


class DeviceHealth(Protocol):
    def check(self) -> None:
        """Raises an InfraError with advice; DeviceError when it is the device."""


@dataclass(frozen=True)
class KnownRun:
    """One launch of the known kernel: whether every word is right, and its time by the device's events."""

    ok: bool
    microseconds: float


class KnownKernel(Protocol):
    def run(self) -> KnownRun: ...


class DeviceBusy(DeviceError):
    """Another process uses the GPU; NVML does not tell whose it is."""


@contextmanager
def device_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        if type(error).__name__ not in _TORCH_ERRORS and not first.startswith(("CUDA error", "cuDNN error")):
            raise
        raise DeviceError(f"the judge could not go on on its device: {first}") from error


@dataclass(frozen=True)
class HostHealth:
    """The CPU target: memory and disk for a worker. Other trials share them, so no project is blamed."""

    folder: Path
    memory: Callable[[], int] = lambda: grown_bytes(FREE_MEMORY_BYTES, free_bytes)

    def check(self) -> None:
        """Raises SandboxError when memory is short, StorageError when the disk is."""
        available = self.memory()
        if available < FREE_MEMORY_BYTES:
            raise SandboxError(
                f"only {available >> 20} MiB of memory are available, and a worker needs "
                f"{FREE_MEMORY_BYTES >> 20}: end other programs, or run fewer trials at once"
            )
        free = shutil.disk_usage(self.folder).free
        if free < FREE_DISK_BYTES:
            raise StorageError(
                f"only {free >> 20} MiB are free where builds lie ({self.folder}), and one may need "
                f"{FREE_DISK_BYTES >> 20}: make room, or name another folder with --cache"
            )


class GpuHealth:
    """The CUDA target: NVML, then the known kernel. Close it when done."""

    def __init__(self, uuid: str, known: KnownKernel, *, leaving_s: float = LEAVING_S) -> None:
        """Starts watching. Raises DeviceError when NVML is missing or does not know that GPU."""
        nvml = open_nvml()
        if nvml is None:
            raise DeviceError(
                f"GPU {uuid} cannot be checked: NVML is missing or no driver is loaded; install the "
                "driver's management library (in a container: the capability `utility`)"
            )
        self._uuid = uuid
        self._known = known
        self._nvml: Nvml = nvml
        self._leaving_s = leaving_s
        self._first_us: float | None = None
        self._before: frozenset[int] | None = None
        try:
            self._xids: XidWatch | None = watch_gpu(uuid)
        except DeviceError:
            nvml.close()
            raise

    def check(self) -> None:
        """Xids, memory cells, the known kernel, and processes left behind. Raises DeviceError."""
        try:
            if self._xids is not None:
                faulted(self._xids.take(), self._uuid)
            failed = self._nvml.failed_memory(self._uuid)
            if failed == "no spares":
                raise DeviceError(f"GPU {self._uuid} has no spare memory rows left: have the board replaced")
            if failed == "reset needed":
                raise DeviceError(
                    f"GPU {self._uuid} has failed memory that a reset takes out of use: {RESET}"
                )
            self._check_known()
            self._check_processes()
        except NvmlError as error:
            raise DeviceError(f"GPU {self._uuid} does not answer: {error}; {RESET}") from error

    def _check_known(self) -> None:
        run = self._known.run()
        if not run.ok:
            raise DeviceError(f"GPU {self._uuid} computed a known kernel wrongly: {RESET}")
        if self._first_us is None:
            self._first_us = run.microseconds
        if run.microseconds > SLOWEST * self._first_us:
            held = ", ".join(self._nvml.state(self._uuid).held_down_by or ()) or "nothing"
            raise DeviceError(
                f"GPU {self._uuid} takes {run.microseconds:.1f} us for a known kernel that took "
                f"{self._first_us:.1f} us at first (clocks held down by: {held}): let it cool, see who "
                f"else uses it, or {RESET}"
            )

    def _check_processes(self) -> None:
        now = self._nvml.processes(self._uuid)
        if self._before is None:
            self._before = now
        give_up = time.monotonic() + self._leaving_s
        while (more := now - self._before) and time.monotonic() < give_up:
            time.sleep(_POLL_S)
            now = self._nvml.processes(self._uuid)
        if more:
            raise DeviceBusy(
                f"GPU {self._uuid} is used by process {', '.join(map(str, sorted(more)))} (in the host's "
                "numbering): end it, or wait for it, and grade again"
            )

    def close(self) -> None:
        if self._xids is not None:
            self._xids.close()
            self._xids = None
        self._nvml.close()


class HealthGuard:
    """Checks the device around every project, and remembers which of them lost one. Thread-safe."""

    def __init__(self, health: DeviceHealth) -> None:
        self._health = health
        self._lost: set[str] = set()
        self._lock = threading.Lock()

    def remember(self, project: str) -> None:
        with self._lock:
            self._lost.add(project)

    def watch(self, project: str, work: Callable[[], Grade]) -> Grade | Finding:
        """Run `work`, which grades `project` (digest) and kills its processes, between checks of the device
        (again only after a crash or a hang). The grade, or the finding where the device was lost under this
        project for the second time. Raises DeviceLost the first time, and what check() raises beforehand."""
        self._health.check()
        try:
            grade = work()
            if grade.verdict in _SUSPICIOUS:
                self._health.check()
        except DeviceBusy:
            raise
        except DeviceError as error:
            return self._lost_under(project, error)
        return grade

    def _lost_under(self, project: str, error: DeviceError) -> Finding:
        with self._lock:
            again = project in self._lost
            self._lost.add(project)
        if not again:
            raise DeviceLost(f"a device that was well before failed under a project: {error}", project)
        message = f"twice the device was well before the project ran and not after: {error}"
        return Finding(cause=Cause.DEVICE_FAULT, message=message)
