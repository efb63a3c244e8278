"""A made-up GPU to grade on: NVML and CUDA are the compiled stand-ins, memory is the host's.

Invariant: how busy the machine is does not show as the GPU's speed.
"""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from pathlib import Path

import torch

from harness.device.health import GpuHealth
from harness.device.known_kernel import KnownKernel, KnownRun
from harness.device.telemetry import Telemetry
from harness.judge.shared_memory import CudaTransport
from harness.judge.usable_gpu import Gpu, KnownSpeed
from sandboxes.job import Job, Process, Sandbox
from tests.fakes.cuda_driver import FakeDriver
from tests.fakes.nvml import WHOLE
from tests.fakes.sandbox import Wrapped

_THREADS = 1 << 12
_RUN_US = 1000.0


class Steady:
    """The known kernel, really run, at the steady speed that a host's core does not have."""

    def __init__(self, kernel: KnownKernel) -> None:
        self._kernel = kernel

    def run(self) -> KnownRun:
        """Its result, and a time that is always the same. Raises DeviceError."""
        return dataclasses.replace(self._kernel.run(), microseconds=_RUN_US)


def made_up_gpu(driver: FakeDriver) -> Gpu:
    """Open, as harness.judge.usable_gpu.open_gpu would; the caller closes it."""
    with ExitStack() as opened:
        transport = CudaTransport(driver=driver, tensors=torch.device("cpu"))
        opened.callback(transport.close)
        kernel = KnownKernel(transport.gpu, count=_THREADS)
        opened.callback(kernel.close)
        speed = KnownSpeed(Steady(kernel))
        health = GpuHealth(WHOLE, speed)
        opened.callback(health.close)
        telemetry = Telemetry(WHOLE)
        opened.callback(telemetry.close)
        return Gpu(WHOLE, transport, health, telemetry, speed, 1 << 33, opened.pop_all())


class WithoutDevice(Wrapped):
    """A sandbox that hands in no GPU, since the one that jobs name is made up."""

    def __init__(self, inner: Sandbox, events: Path | None = None, code: int = 0) -> None:
        """`events`: where the made-up GPU reports the Xid `code` as soon as something runs."""
        super().__init__(inner)
        self._events, self._code = events, code
        self.devices: list[str | None] = []
        """What each job asked for."""
        self.alone = True
        """No worker of a project was started beside another."""
        self._projects: list[Process] = []

    def start(self, job: Job) -> Process:
        """Report, then start."""
        self.devices.append(job.device)
        if self._events is not None:
            with self._events.open("a") as log:
                log.write(f"{self._code}\n")
        process = self.inner.start(dataclasses.replace(job, device=None))
        if "project" in job.inputs:
            self.alone = self.alone and all(one.wait(0) is not None for one in self._projects)
            self._projects.append(process)
        return process
