"""The GPU or MIG instance of a job: its device files, and what else a sandbox hands in for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import DeviceError, SandboxError
from sandboxes.driver import driver_environment, driver_libraries
from sandboxes.job import Job
from sandboxes.nvml import Gpu, MigInstance, NvmlError, XidWatch, open_nvml

# These choose a device or load code: the container toolkit's hook once inherited LD_PRELOAD (CVE-2025-23266).
_OURS = re.compile(r"NVIDIA_.*|LD_.*|GLIBC_TUNABLES|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|INJECTION.*|MPS_.*)")


NO_MPS = "/nonexistent"
"""As the folder of MPS's pipes: processes use the GPU by themselves, though a server may run."""


@dataclass(frozen=True)
class GpuSlot:
    gpu: Gpu
    instance: MigInstance | None = None

    @property
    def uuid(self) -> str:
        return self.gpu.uuid if self.instance is None else self.instance.uuid


def find_gpus() -> list[Gpu]:
    """The GPUs of this machine; none without a driver. Raises NvmlError."""
    nvml = open_nvml()
    if nvml is None:
        return []
    with nvml:
        return nvml.gpus()


def slot_named(device: str, gpus: Sequence[Gpu]) -> GpuSlot:
    """The GPU with that UUID or index, or the MIG instance with that UUID. Raises DeviceError.

    A GPU in MIG mode cannot be used as a whole.
    """
    for gpu in gpus:
        for instance in gpu.instances:
            if device == instance.uuid:
                return GpuSlot(gpu, instance)
        if device in (gpu.uuid, str(gpu.index)):
            if gpu.mig:
                known = ", ".join(i.uuid for i in gpu.instances) or "none is set up"
                raise DeviceError(f"GPU {device} is in MIG mode: name one of its instances ({known})")
            return GpuSlot(gpu)
    known = ", ".join(f"{g.index} = {g.uuid} ({g.name})" for g in gpus) or "there is none, or no driver"
    raise DeviceError(f"no GPU {device!r} on this machine; there are: {known}")


def watch_gpu(device: str) -> XidWatch | None:
    """Watch the GPU that a Job names `device`; None where Xids are not reported, or not to this user.

    NVML reports by whole GPU: a MIG instance is watched through its GPU. Raises DeviceError.
    """
    nvml = open_nvml()
    if nvml is None:
        return None
    try:
        return XidWatch(nvml, slot_named(device, nvml.gpus()).gpu.uuid)
    except DeviceError as error:
        nvml.close()
        if isinstance(error, NvmlError) and error.unsupported:
            return None
        raise


def device_nodes(
    slot: GpuSlot, dev: Path = Path("/dev"), driver: Path = Path("/proc/driver/nvidia")
) -> list[Path]:
    """Device files that CUDA needs, those of `slot` first. Raises DeviceError when one is missing."""
    wanted = [*_own_nodes(slot, dev, driver), dev / "nvidiactl", dev / "nvidia-uvm"]
    missing = [path for path in wanted if not path.is_char_device()]
    if missing:
        raise DeviceError(
            f"GPU {slot.uuid}: {', '.join(map(str, missing))} is missing or is no device: "
            "as root: nvidia-modprobe -u -c 0; in a container, start it with this GPU"
        )
    tools = dev / "nvidia-uvm-tools"
    return [*wanted, tools] if tools.is_char_device() else wanted


def _own_nodes(slot: GpuSlot, dev: Path, driver: Path) -> list[Path]:
    minor = slot.gpu.minor
    if minor is None:
        raise DeviceError(f"GPU {slot.gpu.uuid}: the driver does not report its minor number")
    nodes = [dev / f"nvidia{minor}"]
    if slot.instance is not None:
        group = driver / f"capabilities/gpu{minor}/mig/gi{slot.instance.gpu_instance}"
        for access in (group / "access", group / f"ci{slot.instance.compute_instance}/access"):
            nodes.append(dev / "nvidia-caps" / f"nvidia-cap{_capability(access)}")
    return nodes


def _capability(access: Path) -> int:
    try:
        return int(re.findall(r"DeviceFileMinor:\s*(\d+)", access.read_text())[0])
    except (OSError, IndexError) as error:
        raise DeviceError(f"{access} names no DeviceFileMinor; the MIG instance may be gone") from error


def checked_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The job's variables. Raises SandboxError if one chooses a device or loads code."""
    refused = sorted(name for name in environment if _OURS.fullmatch(name))
    if refused:
        raise SandboxError(
            f"a job may not set {', '.join(refused)}: devices are chosen by Job.device, and no code of a "
            "job is loaded outside its sandbox"
        )
    return dict(environment)


@dataclass(frozen=True)
class HostGpu:
    nodes: tuple[Path, ...] = ()
    libraries: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    loader: Mapping[str, str] = field(default_factory=dict)
    """Part of `environment` that the dynamic loader reads, which it does only when a program starts."""


def gpu_of(job: Job, *, closed: bool = True) -> HostGpu:
    """What a sandbox hands in for the job's GPU. `closed`: it hides the host's device files, so that they are
    handed in too. Raises DeviceError."""
    if job.device is None:
        return HostGpu()
    slot = slot_named(job.device, find_gpus())
    libraries = driver_libraries()
    loader = driver_environment(libraries)
    variables = {"CUDA_VISIBLE_DEVICES": slot.uuid, "CUDA_MPS_PIPE_DIRECTORY": NO_MPS} | loader
    return HostGpu(tuple(device_nodes(slot) if closed else ()), tuple(libraries), variables, loader)
