"""The GPU that projects run on: whether there is one, whether it can be used, and whether it is healthy."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import torch

from harness.device import known_kernel
from harness.device.health import RESET, DeviceHealth, GpuHealth, KnownKernel, KnownRun
from harness.device.telemetry import Telemetry
from harness.errors import DeviceError
from harness.judge.shared_memory import MPS_REFUSED, CudaTransport, Transport
from harness.records import MachineFacts
from sandboxes.gpu import GpuSlot, device_nodes, find_gpus, slot_named
from sandboxes.nvml import Gpu as HostGpu

CAPABILITY: Final = (9, 0)
"""Projects are built for sm_90: such code runs on no other."""
WITHIN: Final = 0.02
SETTLE_S: Final = 0.3
"""How long clocks may take to rise from idle (our choice, not calibrated)."""
_LEAST_RUNS: Final = 9
_MPS_PIPES: Final = "/tmp/nvidia-mps"
_MPS_PROGRAM: Final = "nvidia-cuda-mps"  # Linux keeps 15 characters of nvidia-cuda-mps-control


class KnownSpeed:
    """The known kernel, once clocks had time to rise: is the GPU as fast as when this session began?"""

    def __init__(self, kernel: KnownKernel, clock: Callable[[], float] = time.monotonic) -> None:
        self._kernel = kernel
        self._clock = clock

    @cached_property
    def session_us(self) -> float:
        """Its time when this session began, once it has settled."""
        give_up, runs = self._clock() + SETTLE_S, list[float]()
        while len(runs) < _LEAST_RUNS or self._clock() < give_up:
            runs.append(self._kernel.run().microseconds)
        return statistics.median(runs[len(runs) // 2 :])

    def run(self) -> KnownRun:
        """The first run that is wrong or within 2 % of the session's value, else the last in 0.3 s."""
        session_us = self.session_us
        give_up = self._clock() + SETTLE_S
        while True:
            run = self._kernel.run()
            near = abs(run.microseconds / session_us - 1.0) <= WITHIN
            if not run.ok or near or self._clock() >= give_up:
                return run

    def doubt(self) -> str | None:
        """Why a measurement made now does not count; None if it does. Raises DeviceError."""
        run = self.run()
        if not run.ok:
            raise DeviceError(f"the GPU computed a known kernel wrongly while it was timed: {RESET}")
        if abs(run.microseconds / self.session_us - 1.0) <= WITHIN:
            return None
        return f"a known kernel takes {run.microseconds:.1f} us, and took {self.session_us:.1f} us at first"


@dataclass(frozen=True)
class Gpu:
    uuid: str
    transport: Transport
    health: DeviceHealth
    telemetry: Telemetry
    speed: KnownSpeed
    memory_bytes: int
    closing: ExitStack

    def close(self) -> None:
        self.closing.close()


def open_gpu(machine: MachineFacts) -> Gpu | str:
    """The GPU of this machine, ready for grading, or why it cannot be used. Takes seconds: CUDA starts."""
    uuid = machine.gpu_uuid
    if uuid is None:
        return "no GPU was found"
    why = refused(uuid)
    if why is not None:
        return why
    with ExitStack() as opened:
        try:
            transport = CudaTransport(uuid)
            opened.callback(transport.close)
            kernel = known_kernel.KnownKernel(transport.gpu)
            opened.callback(kernel.close)
            kernel.tune()
            speed = KnownSpeed(kernel)
            health = GpuHealth(uuid, speed)
            opened.callback(health.close)
            telemetry = Telemetry(uuid)
            opened.callback(telemetry.close)
        except DeviceError as error:
            return str(error)
        memory_bytes = transport.gpu.total_bytes
        return Gpu(uuid, transport, health, telemetry, speed, memory_bytes, opened.pop_all())


def refused(uuid: str) -> str | None:
    """Why a GPU cannot be used for grading, as far as that is known without starting CUDA; None if it can."""
    try:
        gpus = find_gpus()
        owners = {name: gpu for gpu in gpus for name in (gpu.uuid, *(part.uuid for part in gpu.instances))}
        gpu = owners.get(uuid) or slot_named(uuid, gpus).gpu
        why = ruled_out(gpu)
        if why is not None:
            return why
        if torch.version.cuda is None:
            return f"torch {torch.__version__} is built without CUDA: install a CUDA build of it"
        available = torch.cuda.is_available()  # makes device files that are missing, where it may
        device_nodes(GpuSlot(gpu))
    except DeviceError as error:
        return str(error)
    if not available:
        return f"torch {torch.__version__} (CUDA {torch.version.cuda}) finds no GPU that it can use"
    return None


def ruled_out(gpu: HostGpu) -> str | None:
    """Why the kind or the mode of a GPU rules it out, and what to do; None if it does not."""
    if gpu.capability != CAPABILITY:
        has, wants = (f"{major}.{minor}" for major, minor in (gpu.capability, CAPABILITY))
        return f"{gpu.name} has compute capability {has}, and projects are built for {wants} (H100, H200)"
    set_mode = f"as root, nvidia-smi -i {gpu.index}"
    if gpu.mig:
        return f"{gpu.name} is in MIG mode, and a part of a GPU cannot be timed: {set_mode} -mig 0"
    if gpu.compute_mode not in (None, "DEFAULT"):
        several = "judge and workers are processes of their own"
        return f"{gpu.name} is in compute mode {gpu.compute_mode}, and {several}: {set_mode} -c DEFAULT"
    return MPS_REFUSED if mps_runs(os.environ) else None


def mps_runs(environment: Mapping[str, str], proc: Path = Path("/proc")) -> bool:
    """Whether CUDA, started with these variables, would share the GPU by MPS. A server that runs where it is
    not visible shows only when a device is opened."""
    pipes = Path(environment.get("CUDA_MPS_PIPE_DIRECTORY") or _MPS_PIPES)
    if not (pipes / "control").exists():
        return False
    for name in proc.glob("[0-9]*/comm"):
        with suppress(OSError):  # it has ended
            if name.read_text().startswith(_MPS_PROGRAM):
                return True
    return False
