"""What an Xid error of a GPU means, and a watch for them while a job runs.

A code that is in neither list counts as the device's, so it is never held against a student.

NVML tells the code but not the process; one job at a time has a GPU, so what is reported while it runs
is its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from harness.errors import DeviceError
from sandboxes.gpu import slot_named
from sandboxes.nvml import LIBRARY, Nvml, NvmlError, open_nvml

_XID_EVENT = 0x8
# From NVIDIA's Xid catalogue: an illegal access or instruction, an MMU fault, a channel reset because
# of another error, and a context that was torn down while it ran (also what killing a job causes).
_OF_THE_APPLICATION = {13: "exception in a kernel", 31: "MMU fault", 43: "channel stopped", 45: "preempted"}
_OF_THE_DEVICE = {
    46: "the GPU stopped processing",
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    64: "ECC page retirement failed",
    79: "the GPU has fallen off the bus",
    94: "contained ECC error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    119: "GSP timeout",
    120: "GSP error",
    154: "the GPU asks for a recovery",
}


@dataclass(frozen=True)
class Xid:
    """One error that a GPU has reported."""

    code: int
    """999 is the library's word for a code that it does not know."""

    @property
    def blame(self) -> Literal["application", "device"]:
        """Whose fault it is."""
        return "application" if self.code in _OF_THE_APPLICATION else "device"

    def __str__(self) -> str:
        known = _OF_THE_APPLICATION.get(self.code) or _OF_THE_DEVICE.get(self.code)
        return f"Xid {self.code} ({known or 'not in our list'})"


def faulted(xids: Iterable[Xid], device: str) -> bool:
    """Whether the job did something that its GPU does not allow.

    Raises DeviceError when the GPU itself is at fault: nothing that ran on it then can be judged.
    """
    seen = list(xids)
    own = [str(x) for x in seen if x.blame == "device"]
    if own:
        raise DeviceError(
            f"GPU {device} reported {', '.join(own)}: what ran on it is not scored; "
            "use it again only after a reset (nvidia-smi --gpu-reset) or a reboot"
        )
    return bool(seen)


class _Event(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_void_p),
        ("kind", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class XidWatch:
    """Collects the Xids of one GPU while a job runs there; a context manager, or close()."""

    def __init__(self, nvml: Nvml, uuid: str) -> None:
        """Collects from now on, and closes `nvml` when it is closed itself.

        Raises NvmlError where that GPU reports none, or not to us.
        """
        self._nvml = nvml
        self._set = ctypes.c_void_p()
        device = nvml.device(uuid)
        nvml.call("nvmlEventSetCreate", ctypes.byref(self._set))
        try:
            nvml.call("nvmlDeviceRegisterEvents", device, ctypes.c_ulonglong(_XID_EVENT), self._set)
        except NvmlError:
            nvml.call("nvmlEventSetFree", self._set)
            raise

    def __enter__(self) -> XidWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take(self, timeout_s: float = 0.0) -> list[Xid]:
        """Those since the last take; waits up to timeout_s for the first. Raises NvmlError."""
        found: list[Xid] = []
        event = _Event()
        wait_ms = int(timeout_s * 1000)
        while True:
            try:
                self._nvml.call("nvmlEventSetWait_v2", self._set, ctypes.byref(event), ctypes.c_uint(wait_ms))
            except NvmlError as error:
                if error.timed_out:
                    return found
                raise
            if event.kind & _XID_EVENT:
                found.append(Xid(event.data))
            wait_ms = 0

    def close(self) -> None:
        """Stop watching. Safe to call twice."""
        if self._set:
            self._nvml.call("nvmlEventSetFree", self._set)
            self._set = ctypes.c_void_p()
            self._nvml.close()


def watch_gpu(device: str, library: str = LIBRARY) -> XidWatch | None:
    """Watch the GPU that a Job calls `device` from now on; None where Xids are not reported, or not to us.

    NVML reports for whole GPUs, so a MIG instance is watched by the GPU that it is on. Raises DeviceError.
    """
    nvml = open_nvml(library)
    if nvml is None:
        return None
    try:
        return XidWatch(nvml, slot_named(device, nvml.gpus()).gpu.uuid)
    except DeviceError as error:
        nvml.close()
        if isinstance(error, NvmlError) and error.unsupported:
            return None
        raise
