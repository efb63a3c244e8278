"""The calls into NVIDIA's driver that the judge needs, and no others.

Every call that fails is a CudaError that names it, the result, and what to do.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_ulonglong, c_void_p
from typing import Any, Final

from harness.errors import DeviceError

LIBRARY = "libcuda.so.1"
IPC_HANDLE_BYTES = 64
UUID_BYTES = 16

# CUmemAllocationType, CUmemAllocationHandleType, CUmemLocationType, CUmemAccess_flags: all of them 32 bits.
PINNED, POSIX_DESCRIPTOR, ON_DEVICE, READ_WRITE = 1, 1, 1, 3
GRANULARITY_MINIMUM = 0

# CUdevice_attribute
L2_CACHE_BYTES, MULTIPROCESSORS = 38, 16
VIRTUAL_MEMORY, POSIX_EXPORT = 102, 103

_NOT_READY = 600

_STICKY: Final = frozenset({214, 219, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 999})
"""After these every call of the context fails in the same way."""

_ADVICE: Final = {
    2: "other processes hold the device's memory: nvidia-smi lists them",
    3: "the driver is not initialised in this process",
    34: "this libcuda.so.1 is a stub for linking: put the driver's own first on the loader's path",
    36: "install a newer driver",
    46: "another process has the device for itself: nvidia-smi -q -d COMPUTE shows the compute mode",
    100: "no GPU is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES",
    101: "name a GPU that nvidia-smi -L lists",
    214: "an uncorrectable memory error: reset the GPU (nvidia-smi --gpu-reset)",
    222: "the driver is older than this PTX: install a newer one",
    800: "this process may not do that: see the permissions of /dev/nvidia*",
    802: "the system is not ready: start nvidia-fabricmanager, or wait for it",
    803: "library and kernel module of the driver differ in version: reload the module or reboot",
    804: "this GPU does not run with the compatibility library: use the driver's own libcuda.so.1",
}


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = [("type", c_int), ("id", c_int)]


class _AllocationFlags(ctypes.Structure):
    _fields_ = [
        ("compression", c_ubyte),
        ("gpu_direct_rdma", c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", c_ubyte * 4),
    ]


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location", Location),
        ("windows_metadata", c_void_p),
        ("flags", _AllocationFlags),
    ]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", Location), ("flags", c_int)]


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle; passed by value."""

    _fields_ = [("reserved", c_char * IPC_HANDLE_BYTES)]


_out, _pointer, _size, _allocation = c_void_p, c_ulonglong, c_size_t, c_ulonglong
"""An address that is written to; CUdeviceptr; size_t; CUmemGenericAllocationHandle."""
_handle, _flags = c_void_p, c_ulonglong
"""CUcontext, CUstream, CUmodule, CUfunction and CUevent are pointers."""

SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_out,),
    "cuGetErrorName": (c_int, _out),
    "cuGetErrorString": (c_int, _out),
    "cuDeviceGetCount": (_out,),
    "cuDeviceGet": (_out, c_int),
    "cuDeviceGetUuid_v2": (_out, c_int),
    "cuDeviceGetName": (_out, c_int, c_int),
    "cuDeviceGetAttribute": (_out, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_out, c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (_handle,),
    "cuCtxSynchronize": (),
    "cuCtxResetPersistingL2Cache": (),
    "cuMemGetInfo_v2": (_out, _out),
    "cuMemGetAllocationGranularity": (_out, _out, c_int),
    "cuMemCreate": (_out, _size, _out, _flags),
    "cuMemExportToShareableHandle": (_out, _allocation, c_int, _flags),
    "cuMemAddressReserve": (_out, _size, _size, _pointer, _flags),
    "cuMemAddressFree": (_pointer, _size),
    "cuMemMap": (_pointer, _size, _size, _allocation, _flags),
    "cuMemUnmap": (_pointer, _size),
    "cuMemSetAccess": (_pointer, _size, _out, _size),
    "cuMemRelease": (_allocation,),
    "cuMemAlloc_v2": (_out, _size),
    "cuMemFree_v2": (_pointer,),
    "cuMemcpyDtoD_v2": (_pointer, _pointer, _size),
    "cuMemcpyDtoH_v2": (_out, _pointer, _size),
    "cuMemsetD8Async": (_pointer, c_ubyte, _size, _handle),
    "cuIpcGetMemHandle": (_out, _pointer),
    "cuModuleLoadData": (_out, c_char_p),
    "cuModuleUnload": (_handle,),
    "cuModuleGetFunction": (_out, _handle, c_char_p),
    "cuLaunchKernel": (_handle, *[c_uint] * 7, _handle, _out, _out),
    "cuEventCreate": (_out, c_uint),
    "cuEventRecord": (_handle, _handle),
    "cuEventQuery": (_handle,),
    # The first version: the second came with CUDA 12.8, and only older drivers lack it.
    "cuEventElapsedTime": (_out, _handle, _handle),
    "cuEventDestroy_v2": (_handle,),
}


class CudaError(DeviceError):
    """A call into the driver failed."""

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        advice = _ADVICE.get(code)
        if advice is None and code in _STICKY:
            advice = "the context is lost: end this process and start another"
        hint = f"; {advice}" if advice else "; make gpu-check tests what this machine can do"
        super().__init__(f"{call} failed: {name} ({code}): {text}{hint}")
        self.call = call
        self.code = code

    @property
    def sticky(self) -> bool:
        """Whether nothing in this process's context will work any more."""
        return self.code in _STICKY


class Driver:
    """The loaded library."""

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
        """Raises CudaError for every result but success."""
        self._raise(name, self._functions[name](*arguments))

    def reached(self, event: Any) -> bool:
        """Whether the device got to an event. Raises CudaError."""
        code = self._functions["cuEventQuery"](event)
        if code != _NOT_READY:
            self._raise("cuEventQuery", code)
        return bool(code != _NOT_READY)

    def _raise(self, call: str, code: int) -> None:
        if code != 0:
            name = self._text("cuGetErrorName", code)
            raise CudaError(call, code, name, self._text("cuGetErrorString", code))

    def _text(self, function: str, code: int) -> str:
        """A constant of the driver's; it has none for codes that it does not know."""
        text = c_char_p()
        if self._functions[function](code, ctypes.byref(text)) != 0 or text.value is None:
            return "unknown"
        return text.value.decode(errors="replace")

    @property
    def version(self) -> tuple[int, int]:
        """Of CUDA that this driver knows: (13, 0)."""
        number = c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return number.value // 1000, number.value % 1000 // 10
