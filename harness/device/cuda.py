"""NVIDIA's driver, as far as the judge needs it: one GPU's primary context, and memory by address.

A call that fails raises a CudaError that names it, the result, and what to do; the steps before it are
undone.
"""

from __future__ import annotations

import ctypes
import uuid
from contextlib import ExitStack
from ctypes import byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from typing import Any, Final

from harness.errors import DeviceError
from harness.worker import cuda_driver as worker_driver

LIBRARY = "libcuda.so.1"
GRANULARITY_MINIMUM = 0
# CUdevice_attribute
L2_CACHE_BYTES, VIRTUAL_MEMORY, POSIX_EXPORT, MPS_ENABLED = 38, 102, 103, 133
OUT_OF_MEMORY, NOT_SUPPORTED = 2, 801

_NAME_BYTES = 256
_NOT_READY = 600

_STICKY: Final = frozenset({214, 219, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})
_ADVICE: Final = {
    OUT_OF_MEMORY: "other processes hold the device's memory: nvidia-smi lists them",
    46: "another process has the device for itself: nvidia-smi -q -d COMPUTE shows the compute mode",
    100: "no GPU is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES",
    101: "name a GPU that nvidia-smi -L lists",
    214: "an uncorrectable memory error: reset the GPU (nvidia-smi --gpu-reset)",
    222: "the driver is older than this PTX: install a newer one",
    800: "this process may not do that: see the permissions of /dev/nvidia*",
    802: "the system is not ready: start nvidia-fabricmanager, or wait for it",
    803: "library and kernel module of the driver differ in version: reload the module or reboot",
    805: "MPS does not answer: end it (echo quit | nvidia-cuda-mps-control)",
}


SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    **worker_driver.SIGNATURES,
    "cuDriverGetVersion": (c_void_p,),
    "cuGetErrorName": (c_int, c_void_p),
    "cuGetErrorString": (c_int, c_void_p),
    "cuDeviceGetCount": (c_void_p,),
    "cuDeviceGetUuid_v2": (c_void_p, c_int),
    "cuDeviceGetName": (c_void_p, c_int, c_int),
    "cuDeviceGetAttribute": (c_void_p, c_int, c_int),
    "cuCtxResetPersistingL2Cache": (),
    "cuMemGetInfo_v2": (c_void_p, c_void_p),
    "cuMemCreate": (c_void_p, c_size_t, c_void_p, c_ulonglong),
    "cuMemExportToShareableHandle": (c_void_p, c_ulonglong, c_int, c_ulonglong),
    "cuMemAlloc_v2": (c_void_p, c_size_t),
    "cuMemFree_v2": (c_ulonglong,),
    "cuMemcpyDtoH_v2": (c_void_p, c_ulonglong, c_size_t),
    "cuMemcpyHtoD_v2": (c_ulonglong, c_void_p, c_size_t),
    "cuMemsetD8Async": (c_ulonglong, c_ubyte, c_size_t, c_void_p),
    "cuIpcGetMemHandle": (c_void_p, c_ulonglong),
    "cuModuleLoadData": (c_void_p, c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (c_void_p, c_void_p, c_char_p),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
    "cuEventCreate": (c_void_p, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    # The first version: the second came with CUDA 12.8, and only older drivers lack it.
    "cuEventElapsedTime": (c_void_p, c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
}


class CudaError(DeviceError):
    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        advice = _ADVICE.get(code)
        if advice is None and code in _STICKY:
            advice = "the context is lost: end this process and start another"
        hint = f"; {advice}" if advice else "; make gpu-check tests what this machine can do"
        super().__init__(f"{call} failed: {name} ({code}): {text}{hint}")
        self.code = code


class Driver:
    def __init__(self, library: str = LIBRARY) -> None:
        """Raises DeviceError when there is no driver, or one too old to have all functions."""
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise DeviceError(f"{library} cannot be loaded: {error}; install NVIDIA's driver") from error
        missing = [name for name in SIGNATURES if not hasattr(self._library, name)]
        if missing:
            raise DeviceError(f"{library} has no {', '.join(missing)}: the driver is too old for this")
        self._functions = {name: getattr(self._library, name) for name in SIGNATURES}
        for name, function in self._functions.items():
            function.argtypes = SIGNATURES[name]
            function.restype = c_int

    def call(self, name: str, *arguments: Any) -> None:
        self._raise(name, self._functions[name](*arguments))

    def reached(self, event: Any) -> bool:
        code = self._functions["cuEventQuery"](event)
        if code != _NOT_READY:
            self._raise("cuEventQuery", code)
        return bool(code != _NOT_READY)

    def _raise(self, call: str, code: int) -> None:
        if code != 0:
            name = self._text("cuGetErrorName", code)
            raise CudaError(call, code, name, self._text("cuGetErrorString", code))

    def _text(self, function: str, code: int) -> str:
        text = c_char_p()
        if self._functions[function](code, ctypes.byref(text)) != 0 or text.value is None:
            return "unknown"
        return text.value.decode(errors="replace")

    @property
    def version(self) -> tuple[int, int]:
        """Highest CUDA version that this driver supports: (13, 0)."""
        number = c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return number.value // 1000, number.value % 1000 // 10


@dataclass(frozen=True)
class Mapping:
    pointer: int
    size: int
    allocation: int


class Device:
    def __init__(self, driver: Driver, device: str | None = None) -> None:
        """`device`: a UUID as NVML writes it, or an index (default: the first GPU). Raises DeviceError when
        there is no such device, or it cannot be opened."""
        self.driver = driver
        driver.call("cuInit", 0)
        self.ordinal = self._find(device)
        context = c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", byref(context), self.ordinal)
        self._context: c_void_p | None = context
        name = ctypes.create_string_buffer(_NAME_BYTES)
        driver.call("cuDeviceGetName", name, _NAME_BYTES, self.ordinal)
        self.name = name.value.decode(errors="replace")

    def _find(self, device: str | None) -> int:
        count = c_int()
        self.driver.call("cuDeviceGetCount", byref(count))
        uuids = [self._uuid(ordinal) for ordinal in range(count.value)]
        wanted = "0" if device is None else device
        if wanted.isdecimal() and int(wanted) < len(uuids):
            return int(wanted)
        # "MIG-" and "GPU-" precede the same sixteen bytes.
        name = wanted.partition("-")[2].lower()
        if name in uuids:
            return uuids.index(name)
        seen = f"the {len(uuids)} that this process sees"
        raise DeviceError(f"no GPU {wanted} among {seen}; nvidia-smi -L lists them")

    def _uuid(self, ordinal: int) -> str:
        data = ctypes.create_string_buffer(16)
        self.driver.call("cuDeviceGetUuid_v2", data, ordinal)
        return str(uuid.UUID(bytes=data.raw))

    def attribute(self, number: int) -> int:
        value = c_int()
        self.driver.call("cuDeviceGetAttribute", byref(value), number, self.ordinal)
        return value.value

    def call(self, name: str, *arguments: Any) -> None:
        self.driver.call("cuCtxSetCurrent", self._context)
        self.driver.call(name, *arguments)

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    @property
    def total_bytes(self) -> int:
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return total.value

    def close(self) -> None:
        if self._context is not None:
            self._context = None
            self.driver.call("cuDevicePrimaryCtxRelease_v2", self.ordinal)

    def map(self, size: int) -> Mapping:
        """New physical memory of at least `size` bytes, at an address of its own. Raises CudaError."""
        here = worker_driver.Location(worker_driver.ON_DEVICE, self.ordinal)
        properties = worker_driver.AllocationProperties(
            type=worker_driver.PINNED, handle_types=worker_driver.POSIX_DESCRIPTOR, location=here
        )
        unit, allocation, pointer = c_size_t(), c_ulonglong(), c_ulonglong()
        self.call("cuMemGetAllocationGranularity", byref(unit), byref(properties), GRANULARITY_MINIMUM)
        size = -(-size // unit.value) * unit.value
        access = worker_driver.Access(here, worker_driver.READ_WRITE)
        with ExitStack() as undo:
            self.call("cuMemCreate", byref(allocation), size, byref(properties), 0)
            undo.callback(self.call, "cuMemRelease", allocation.value)
            self.call("cuMemAddressReserve", byref(pointer), size, 0, 0, 0)
            undo.callback(self.call, "cuMemAddressFree", pointer.value, size)
            self.call("cuMemMap", pointer.value, size, 0, allocation.value, 0)
            undo.callback(self.call, "cuMemUnmap", pointer.value, size)
            self.call("cuMemSetAccess", pointer.value, size, byref(access), 1)
            undo.pop_all()
        return Mapping(pointer.value, size, allocation.value)

    def unmap(self, mapping: Mapping) -> None:
        self.synchronize()
        self.call("cuMemUnmap", mapping.pointer, mapping.size)
        self.call("cuMemAddressFree", mapping.pointer, mapping.size)
        self.call("cuMemRelease", mapping.allocation)

    def export(self, mapping: Mapping) -> int:
        descriptor = c_int(-1)
        self.call(
            "cuMemExportToShareableHandle",
            byref(descriptor),
            mapping.allocation,
            worker_driver.POSIX_DESCRIPTOR,
            0,
        )
        return descriptor.value

    def allocate(self, size: int) -> int:
        pointer = c_ulonglong()
        self.call("cuMemAlloc_v2", byref(pointer), size)
        return pointer.value

    def free(self, pointer: int) -> None:
        self.call("cuMemFree_v2", pointer)

    def ipc_handle(self, pointer: int) -> bytes:
        handle = worker_driver.IpcHandle()
        self.call("cuIpcGetMemHandle", byref(handle), pointer)
        return bytes(handle)

    def fill(self, pointer: int, byte: int, size: int) -> None:
        self.call("cuMemsetD8Async", pointer, byte, size, None)

    def read(self, pointer: int, size: int) -> bytes:
        """Waits for what was launched before."""
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", data, pointer, size)
        return data.raw

    def write(self, pointer: int, data: bytes) -> None:
        self.call("cuMemcpyHtoD_v2", pointer, data, len(data))

    def load(self, ptx: bytes) -> c_void_p:
        """A module, which unload() gives back. Raises CudaError."""
        module = c_void_p()
        self.call("cuModuleLoadData", byref(module), ptx)
        return module

    def unload(self, module: c_void_p) -> None:
        self.call("cuModuleUnload", module)

    def function(self, module: c_void_p, name: str) -> c_void_p:
        """A kernel of a module. Raises CudaError."""
        function = c_void_p()
        self.call("cuModuleGetFunction", byref(function), module, name.encode())
        return function

    def launch(self, function: c_void_p, blocks: int, threads: int, *values: Any) -> None:
        """Launches on the default stream; `values`: arguments as ctypes objects. Raises CudaError."""
        pointers = (c_void_p * len(values))(*map(ctypes.addressof, values))
        self.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, pointers, None)
