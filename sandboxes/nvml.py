"""What NVIDIA's management library says of the GPUs of this machine.

What a device does not support is None; every other failure is an NvmlError that names the call.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from harness.errors import DeviceError

LIBRARY = "libnvidia-ml.so.1"
_NOT_SUPPORTED, _NO_PERMISSION, _NOT_FOUND, _TOO_SMALL = 3, 4, 6, 7
_DRIVER_NOT_LOADED, _TIMEOUT, _LIBRARY_NOT_FOUND = 9, 10, 12
_NO_FUNCTION = 13  # also what we say of a function that this library is too old to have
_TEXT_BYTES = 96
_CLOCKS = {"sm": 1, "memory": 2}
# nvmlClocksEventReasons*: what holds the clocks down. Idle (bit 0) is no reason.
_REASONS: Final = {
    0x02: "application clocks",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}


class NvmlError(DeviceError):
    """A call into the library failed."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call} failed: {text} (NVML error {code})")
        self.code = code

    @property
    def unsupported(self) -> bool:
        """The device or the driver cannot do that, or may not do it for us."""
        return self.code in (_NOT_SUPPORTED, _NO_PERMISSION, _NO_FUNCTION)

    @property
    def timed_out(self) -> bool:
        """What was waited for did not come."""
        return self.code == _TIMEOUT


@dataclass(frozen=True)
class MigInstance:
    """A slice of a GPU, with a UUID of its own."""

    uuid: str
    gpu_instance: int
    compute_instance: int


@dataclass(frozen=True)
class Gpu:
    """One physical GPU."""

    index: int
    """In NVML's order (by PCI bus), which need not be CUDA's."""
    uuid: str
    name: str
    minor: int | None
    """N of /dev/nvidiaN."""
    capability: tuple[int, int]
    """Such as (9, 0)."""
    mig: bool | None
    """MIG mode is on; None where the GPU has no such mode."""
    instances: tuple[MigInstance, ...] = ()


@dataclass(frozen=True)
class GpuMemory:
    """Of one GPU; `used_bytes` includes what the driver itself keeps."""

    total_bytes: int
    used_bytes: int


@dataclass(frozen=True)
class GpuProcess:
    """A process with a compute context."""

    pid: int
    """In the process namespace of the driver: the host's."""
    memory_bytes: int | None


@dataclass(frozen=True)
class GpuClocks:
    """Now, and at most, in MHz; None where the device does not say."""

    sm_mhz: int | None
    memory_mhz: int | None
    max_sm_mhz: int | None
    max_memory_mhz: int | None
    held_down_by: tuple[str, ...] | None


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


_NO_MEMORY_FIGURE = ctypes.c_ulonglong(-1).value


def open_nvml(library: str = LIBRARY) -> Nvml | None:
    """The library, ready for use; None where it is not installed or no driver is loaded.

    Raises NvmlError when it is there and does not work.
    """
    try:
        loaded = ctypes.CDLL(library)
    except OSError:
        return None
    nvml = Nvml(loaded)
    try:
        nvml.call("nvmlInit_v2")
    except NvmlError as error:
        if error.code in (_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND):
            return None
        raise
    return nvml


class Nvml:
    """An open library; use as a context manager, or close()."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Use open_nvml()."""
        self._library = library

    def __enter__(self) -> Nvml:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release it; the library counts, so others that are open stay so."""
        self.call("nvmlShutdown")

    # --- calls ---------------------------------------------------------------------------------

    def call(self, function: str, *arguments: Any) -> None:
        """Call by name. Raises NvmlError."""
        try:
            code = int(self._library[function](*arguments))
        except AttributeError:
            raise NvmlError(function, _NO_FUNCTION, "the installed driver is too old to have it") from None
        if code:
            raise NvmlError(function, code, self._reason(code))

    def _reason(self, code: int) -> str:
        describe = self._library["nvmlErrorString"]
        describe.restype = ctypes.c_char_p
        text: bytes | None = describe(ctypes.c_int(code))
        return (text or b"unknown").decode(errors="replace")

    def _supported(self, function: str, *arguments: Any) -> bool:
        """Call; False where the device or the driver cannot tell, or may not tell us."""
        try:
            self.call(function, *arguments)
        except NvmlError as error:
            if not error.unsupported and error.code != _NOT_FOUND:  # an empty MIG slot
                raise
            return False
        return True

    def _text(self, function: str, *before: Any) -> str:
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        self.call(function, *before, buffer, ctypes.c_uint(_TEXT_BYTES))
        return buffer.value.decode(errors="replace")

    def _number(self, function: str, *before: Any) -> int | None:
        value = ctypes.c_uint()
        return value.value if self._supported(function, *before, ctypes.byref(value)) else None

    def device(self, uuid: str) -> ctypes.c_void_p:
        """The library's handle of the GPU with that UUID. Raises NvmlError."""
        found = ctypes.c_void_p()
        self.call("nvmlDeviceGetHandleByUUID", ctypes.c_char_p(uuid.encode()), ctypes.byref(found))
        return found

    # --- the machine ---------------------------------------------------------------------------

    def driver_version(self) -> str:
        """Such as 580.95.05."""
        return self._text("nvmlSystemGetDriverVersion")

    def cuda_version(self) -> str | None:
        """The newest CUDA that the driver serves, such as 13.0; None if it does not say."""
        value = ctypes.c_int()
        if not self._supported("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(value)):
            return None
        return f"{value.value // 1000}.{value.value % 1000 // 10}"

    def gpus(self) -> list[Gpu]:
        """All that we may use, in the library's order."""
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        found = []
        for index in range(count.value):
            device = ctypes.c_void_p()
            # A GPU that a cgroup keeps from us is counted all the same.
            if self._supported("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device)):
                found.append(self._gpu(index, device))
        return found

    def _gpu(self, index: int, device: ctypes.c_void_p) -> Gpu:
        major, minor, mode, pending = (ctypes.c_int(), ctypes.c_int(), ctypes.c_uint(), ctypes.c_uint())
        self.call("nvmlDeviceGetCudaComputeCapability", device, ctypes.byref(major), ctypes.byref(minor))
        has_mode = self._supported("nvmlDeviceGetMigMode", device, ctypes.byref(mode), ctypes.byref(pending))
        return Gpu(
            index=index,
            uuid=self._text("nvmlDeviceGetUUID", device),
            name=self._text("nvmlDeviceGetName", device),
            minor=self._number("nvmlDeviceGetMinorNumber", device),
            capability=(major.value, minor.value),
            mig=bool(mode.value) if has_mode else None,
            instances=self._instances(device) if has_mode and mode.value else (),
        )

    def _instances(self, device: ctypes.c_void_p) -> tuple[MigInstance, ...]:
        found = []
        for index in range(self._number("nvmlDeviceGetMaxMigDeviceCount", device) or 0):
            slice_ = ctypes.c_void_p()
            if not self._supported(
                "nvmlDeviceGetMigDeviceHandleByIndex", device, ctypes.c_uint(index), ctypes.byref(slice_)
            ):
                continue
            ids = [self._number(f"nvmlDeviceGet{kind}InstanceId", slice_) for kind in ("Gpu", "Compute")]
            if ids[0] is not None and ids[1] is not None:
                found.append(MigInstance(self._text("nvmlDeviceGetUUID", slice_), ids[0], ids[1]))
        return tuple(found)

    # --- one GPU -------------------------------------------------------------------------------

    def memory(self, uuid: str) -> GpuMemory:
        """How much is there, and in use by anybody."""
        found = _Memory()
        self.call("nvmlDeviceGetMemoryInfo", self.device(uuid), ctypes.byref(found))
        return GpuMemory(total_bytes=found.total, used_bytes=found.used)

    def processes(self, uuid: str) -> list[GpuProcess]:
        """Those that have a compute context."""
        device, room = self.device(uuid), 64
        while True:
            count, found = ctypes.c_uint(room), (_Process * room)()
            try:
                self.call("nvmlDeviceGetComputeRunningProcesses_v3", device, ctypes.byref(count), found)
            except NvmlError as error:
                if error.code != _TOO_SMALL or count.value <= room:
                    raise
                room = count.value + 16  # more may start meanwhile
                continue
            return [
                GpuProcess(p.pid, None if p.memory == _NO_MEMORY_FIGURE else p.memory)
                for p in found[: count.value]
            ]

    def clocks(self, uuid: str) -> GpuClocks:
        """Frequencies now and at most, and what holds them down."""
        device, mask = self.device(uuid), ctypes.c_ulonglong()
        now = {k: self._number("nvmlDeviceGetClockInfo", device, c) for k, c in _CLOCKS.items()}
        most = {k: self._number("nvmlDeviceGetMaxClockInfo", device, c) for k, c in _CLOCKS.items()}
        told = self._supported("nvmlDeviceGetCurrentClocksEventReasons", device, ctypes.byref(mask))
        reasons = tuple(text for bit, text in _REASONS.items() if mask.value & bit)
        return GpuClocks(now["sm"], now["memory"], most["sm"], most["memory"], reasons if told else None)
