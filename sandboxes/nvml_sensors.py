"""What a GPU says of its power, temperature and memory cells, through NVIDIA's management library.

What a device does not tell is None; every other failure is an NvmlError that names the call.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from sandboxes.nvml import Nvml, NvmlError

_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU


class _Temperature(ctypes.Structure):
    """nvmlTemperature_v1_t."""

    _fields_ = [("version", ctypes.c_uint), ("sensor", ctypes.c_int), ("temperature", ctypes.c_int)]


_TEMPERATURE_V1 = ctypes.sizeof(_Temperature) | 1 << 24  # NVML_STRUCT_VERSION


@dataclass(frozen=True)
class GpuSensors:
    """Now."""

    power_w: float | None
    """Of the board; the mean over one second on Ampere (but GA100) and later, says nvml.h."""
    temperature_c: int | None
    """Of the die."""


@dataclass(frozen=True)
class GpuMemoryCells:
    """Memory cells that have failed; None where the GPU does not tell."""

    pages_pending: bool | None
    """Pages wait to be retired at the next reset (before Ampere)."""
    rows_pending: bool | None
    """Rows wait to be remapped at the next reset (Ampere and later)."""
    remapping_failed: bool | None
    """No spare rows were left: the board is to be replaced."""


def _told(nvml: Nvml, function: str, *arguments: Any) -> bool:
    """Call; False where the device or the driver cannot tell."""
    try:
        nvml.call(function, *arguments)
    except NvmlError as error:
        if not error.unsupported:
            raise
        return False
    return True


def sensors(nvml: Nvml, uuid: str) -> GpuSensors:
    """Power and temperature of the GPU with that UUID. Raises NvmlError."""
    device, milliwatts = nvml.device(uuid), ctypes.c_uint()
    power = _told(nvml, "nvmlDeviceGetPowerUsage", device, ctypes.byref(milliwatts))
    return GpuSensors(milliwatts.value / 1000 if power else None, _temperature(nvml, device))


def _temperature(nvml: Nvml, device: ctypes.c_void_p) -> int | None:
    told = _Temperature(_TEMPERATURE_V1, _GPU_SENSOR, 0)
    if _told(nvml, "nvmlDeviceGetTemperatureV", device, ctypes.byref(told)):
        return int(told.temperature)
    # Older drivers have only the call that CUDA 13 deprecates.
    old = ctypes.c_uint()
    if _told(nvml, "nvmlDeviceGetTemperature", device, ctypes.c_int(_GPU_SENSOR), ctypes.byref(old)):
        return old.value
    return None


def memory_cells(nvml: Nvml, uuid: str) -> GpuMemoryCells:
    """Whether memory of the GPU with that UUID has failed. Raises NvmlError."""
    device, pages = nvml.device(uuid), ctypes.c_int()
    corrected, uncorrected, pending, failed = (ctypes.c_uint() for _ in range(4))
    rows = _told(
        nvml,
        "nvmlDeviceGetRemappedRows",
        device,
        *(ctypes.byref(value) for value in (corrected, uncorrected, pending, failed)),
    )
    retired = _told(nvml, "nvmlDeviceGetRetiredPagesPendingStatus", device, ctypes.byref(pages))
    return GpuMemoryCells(
        pages_pending=bool(pages.value) if retired else None,
        rows_pending=bool(pending.value) if rows else None,
        remapping_failed=bool(failed.value) if rows else None,
    )
