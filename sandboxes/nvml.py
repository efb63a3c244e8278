"""The GPUs of this machine, as NVIDIA's management library (NVML) reports them.

A value that a device does not support is None; every other failure is an NvmlError that names the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

import pynvml

from harness.errors import DeviceError
from sandboxes.driver import load_driver

_UNSUPPORTED: Final = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
)
_ABSENT: Final = (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
# nvmlClocksEventReasons*; bit 0 (idle) is left out, since an idle GPU is not throttled.
_THROTTLE_REASONS: Final = {
    0x02: "application clocks",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
_COMPUTE_MODES: Final = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "DEFAULT",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "EXCLUSIVE_THREAD",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "PROHIBITED",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "EXCLUSIVE_PROCESS",
}
# NVIDIA's Xid catalogue. Code 45 is also caused by killing a job.
_APPLICATION_XIDS: Final = {
    13: "exception in a kernel",
    31: "MMU fault",
    43: "channel stopped",
    45: "preempted",
}
_DEVICE_XIDS: Final = {
    48: "double-bit ECC error",
    79: "the GPU has fallen off the bus",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP timeout",
}


class NvmlError(DeviceError):
    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call} failed: {text} (NVML error {code})")
        self.code = code

    @property
    def unsupported(self) -> bool:
        """The device or the driver does not offer this call, or not to this user."""
        return self.code in _UNSUPPORTED


@dataclass(frozen=True)
class MigInstance:
    uuid: str
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True)
class Gpu:
    index: int
    """NVML's order (by PCI bus), which may differ from CUDA's."""
    uuid: str
    name: str
    minor: int | None
    capability: tuple[int, int]
    mig: bool | None
    instances: tuple[MigInstance, ...] = ()
    compute_mode: str | None = None
    """How many processes may use it, as nvidia-smi names it."""


@dataclass(frozen=True)
class GpuMemory:
    total_bytes: int
    used_bytes: int


@dataclass(frozen=True)
class GpuState:
    sm_mhz: int | None
    memory_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    held_down_by: tuple[str, ...] | None
    """Why the clocks are below their maximum."""


def _call(function: str, *arguments: Any) -> Any:
    try:
        return getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlError(function, error.value, str(error)) from error


def _optional(function: str, *arguments: Any) -> Any:
    """None where the device does not support the call, or has no such part. Raises NvmlError."""
    try:
        return _call(function, *arguments)
    except NvmlError as error:
        if error.unsupported or error.code == pynvml.NVML_ERROR_NOT_FOUND:  # an empty MIG slot
            return None
        raise


def _why_absent() -> int | None:
    """The code of the failure to initialize NVML; None when it is initialized. Raises NvmlError."""
    try:
        _call("nvmlInit")
    except NvmlError as error:
        if error.code in _ABSENT:
            return error.code
        raise
    return None


def open_nvml() -> Nvml | None:
    """An initialized NVML; None where it is not installed or no driver is loaded. Raises NvmlError.

    Where the loader does not know the driver's libraries, they are loaded by path, CUDA's too."""
    why = _why_absent()
    if why == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND and load_driver():
        why = _why_absent()
    return Nvml() if why is None else None


class Nvml:
    """An initialized NVML (see open_nvml); a context manager. NVML counts its users."""

    def __enter__(self) -> Nvml:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        _call("nvmlShutdown")

    def driver_version(self) -> str:
        return str(_call("nvmlSystemGetDriverVersion"))

    def gpus(self) -> list[Gpu]:
        """All GPUs that this process may use, in NVML's order."""
        handles = [_optional("nvmlDeviceGetHandleByIndex", n) for n in range(_call("nvmlDeviceGetCount"))]
        # GPUs that a cgroup denies are counted too.
        return [_gpu(index, device) for index, device in enumerate(handles) if device is not None]

    def device(self, uuid: str) -> Any:
        """NVML's handle of the GPU with that UUID. Raises NvmlError."""
        return _call("nvmlDeviceGetHandleByUUID", uuid)

    def memory(self, uuid: str) -> GpuMemory:
        found = _call("nvmlDeviceGetMemoryInfo", self.device(uuid))
        return GpuMemory(total_bytes=found.total, used_bytes=found.used)

    def processes(self, uuid: str) -> frozenset[int]:
        """Processes with a compute context, by their number in the host's PID namespace."""
        found = _call("nvmlDeviceGetComputeRunningProcesses", self.device(uuid))
        return frozenset(process.pid for process in found)

    def state(self, uuid: str) -> GpuState:
        device = self.device(uuid)
        mask = _optional("nvmlDeviceGetCurrentClocksEventReasons", device)
        milliwatts = _optional("nvmlDeviceGetPowerUsage", device)
        celsius = _optional("nvmlDeviceGetTemperatureV", device, pynvml.NVML_TEMPERATURE_GPU)
        if celsius is None:  # older drivers
            celsius = _optional("nvmlDeviceGetTemperature", device, pynvml.NVML_TEMPERATURE_GPU)
        return GpuState(
            sm_mhz=_optional("nvmlDeviceGetClockInfo", device, pynvml.NVML_CLOCK_SM),
            memory_mhz=_optional("nvmlDeviceGetClockInfo", device, pynvml.NVML_CLOCK_MEM),
            power_w=None if milliwatts is None else milliwatts / 1000,
            temperature_c=celsius,
            held_down_by=None
            if mask is None
            else tuple(text for bit, text in _THROTTLE_REASONS.items() if mask & bit),
        )

    def failed_memory(self, uuid: str) -> Literal["reset needed", "no spares"] | None:
        """Whether memory has failed that a reset takes out of use, or that no spare row can replace."""
        rows = _optional("nvmlDeviceGetRemappedRows", self.device(uuid))
        _, _, pending, failed = rows or (0, 0, 0, 0)
        return "no spares" if failed else "reset needed" if pending else None


def _gpu(index: int, device: Any) -> Gpu:
    mode = _optional("nvmlDeviceGetMigMode", device)
    return Gpu(
        index=index,
        uuid=_call("nvmlDeviceGetUUID", device),
        name=_call("nvmlDeviceGetName", device),
        minor=_optional("nvmlDeviceGetMinorNumber", device),
        capability=tuple(_call("nvmlDeviceGetCudaComputeCapability", device)),
        mig=None if mode is None else bool(mode[0]),
        instances=_instances(device) if mode and mode[0] else (),
        compute_mode=_COMPUTE_MODES.get(_optional("nvmlDeviceGetComputeMode", device)),
    )


def _instances(device: Any) -> tuple[MigInstance, ...]:
    found = []
    for index in range(_optional("nvmlDeviceGetMaxMigDeviceCount", device) or 0):
        instance = _optional("nvmlDeviceGetMigDeviceHandleByIndex", device, index)
        if instance is None:
            continue
        ids = [_optional(f"nvmlDeviceGet{kind}InstanceId", instance) for kind in ("Gpu", "Compute")]
        if None not in ids:
            found.append(MigInstance(_call("nvmlDeviceGetUUID", instance), *ids))
    return tuple(found)


@dataclass(frozen=True)
class Xid:
    code: int
    """999 means a code that NVML does not know."""

    @property
    def blame(self) -> Literal["application", "device"]:
        return "application" if self.code in _APPLICATION_XIDS else "device"

    def __str__(self) -> str:
        known = _APPLICATION_XIDS.get(self.code) or _DEVICE_XIDS.get(self.code)
        return f"Xid {self.code} ({known or 'unknown code'})"


def faulted(xids: Iterable[Xid], device: str) -> bool:
    """Whether the job caused a GPU fault. Raises DeviceError when the GPU itself is at fault."""
    seen = list(xids)
    own = [str(xid) for xid in seen if xid.blame == "device"]
    if own:
        raise DeviceError(
            f"GPU {device} reported {', '.join(own)}: what ran on it is not scored; "
            "use it again only after a reset (nvidia-smi --gpu-reset) or a reboot"
        )
    return bool(seen)


class XidWatch:
    """Collects the Xids of one GPU from its creation on; a context manager, or close().

    NVML reports the code but not the process; the GPU's lock is held by one job at a time.
    """

    def __init__(self, nvml: Nvml, uuid: str) -> None:
        """Takes over `nvml`. Raises NvmlError where that GPU does not report Xids to this user."""
        self._nvml = nvml
        device = nvml.device(uuid)
        self._set = _call("nvmlEventSetCreate")
        try:
            _call("nvmlDeviceRegisterEvents", device, pynvml.nvmlEventTypeXidCriticalError, self._set)
        except NvmlError:
            _call("nvmlEventSetFree", self._set)
            raise

    def __enter__(self) -> XidWatch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def take(self, timeout_s: float = 0.0) -> list[Xid]:
        """Xids since the last take; waits up to timeout_s for the first. Raises NvmlError."""
        found: list[Xid] = []
        wait_ms = int(timeout_s * 1000)
        while True:
            try:
                event = _call("nvmlEventSetWait_v2", self._set, wait_ms)
            except NvmlError as error:
                if error.code == pynvml.NVML_ERROR_TIMEOUT:
                    return found
                raise
            if event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                found.append(Xid(event.eventData))
            wait_ms = 0

    def close(self) -> None:
        if self._set is not None:
            _call("nvmlEventSetFree", self._set)
            self._set = None
            self._nvml.close()
