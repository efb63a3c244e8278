"""Runs INSIDE the sandbox, beside cuda_calls.py: the calls into NVIDIA's driver that a worker needs.

Memory that came by descriptor is mapped at the same addresses, and only between show() and hide(); a block of
legacy IPC stays open.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_ulonglong, c_void_p
from typing import Any

_LIBRARY = "libcuda.so.1"


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle; passed by value."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


class Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


class AllocationProperties(ctypes.Structure):
    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location", Location),
        ("windows_metadata", c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


# CUmemAllocationType, CUmemAllocationHandleType, CUmemLocationType, CUmemAccess_flags: all of them 32 bits.
PINNED, POSIX_DESCRIPTOR, ON_DEVICE, READ_WRITE = 1, 1, 1, 3
LAZY_PEER = 1
# Handles (contexts, streams, modules, functions, events) and output addresses are pointers.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGet": (c_void_p, c_int),
    "cuDevicePrimaryCtxRetain": (c_void_p, c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemGetAllocationGranularity": (c_void_p, c_void_p, c_int),
    "cuMemAddressReserve": (c_void_p, c_size_t, c_size_t, c_ulonglong, c_ulonglong),
    "cuMemAddressFree": (c_ulonglong, c_size_t),
    "cuMemImportFromShareableHandle": (c_void_p, c_void_p, c_int),
    "cuMemMap": (c_ulonglong, c_size_t, c_size_t, c_ulonglong, c_ulonglong),
    "cuMemSetAccess": (c_ulonglong, c_size_t, c_void_p, c_size_t),
    "cuMemUnmap": (c_ulonglong, c_size_t),
    "cuMemRelease": (c_ulonglong,),
    "cuIpcOpenMemHandle_v2": (c_void_p, IpcHandle, ctypes.c_uint),
    "cuIpcCloseMemHandle": (c_ulonglong,),
}


class Driver:
    """The first GPU that this process sees: a sandbox shows it exactly one."""

    def __init__(self) -> None:
        library = ctypes.CDLL(_LIBRARY)
        self._functions = {name: getattr(library, name) for name in SIGNATURES}
        for name, function in self._functions.items():
            function.argtypes, function.restype = SIGNATURES[name], c_int
        self.call("cuInit", 0)
        self.device, context = c_int(), c_void_p()
        self.call("cuDeviceGet", byref(self.device), 0)
        self.call("cuDevicePrimaryCtxRetain", byref(context), self.device.value)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: Any) -> None:
        code = self._functions[name](*arguments)
        if code != 0:
            raise RuntimeError(f"{name} failed with CUresult {code}")


class Window:
    """Addresses at which arenas are mapped by descriptor, one at a time."""

    def __init__(self, driver: Driver, size: int) -> None:
        self._call = driver.call
        here = Location(ON_DEVICE, driver.device.value)
        properties = AllocationProperties(type=PINNED, handle_types=POSIX_DESCRIPTOR, location=here)
        self._access = Access(here, READ_WRITE)
        unit, address = c_size_t(), c_ulonglong()
        self._call("cuMemGetAllocationGranularity", byref(unit), byref(properties), 0)
        self._size = -(-size // unit.value) * unit.value
        self._call("cuMemAddressReserve", byref(address), self._size, 0, 0, 0)
        self.address = address.value
        self._mapped = 0

    def show(self, descriptor: int, message: dict[str, Any]) -> None:
        allocation, size = c_ulonglong(), message["mapped_bytes"]
        self._call("cuMemImportFromShareableHandle", byref(allocation), descriptor, POSIX_DESCRIPTOR)
        self._call("cuMemMap", self.address, size, 0, allocation.value, 0)
        self._mapped = size
        self._call("cuMemSetAccess", self.address, size, byref(self._access), 1)
        self._call("cuMemRelease", allocation.value)  # the mapping keeps it

    def hide(self) -> None:
        if self._mapped:
            self._call("cuMemUnmap", self.address, self._mapped)
            self._mapped = 0

    def close(self) -> None:
        self.hide()
        self._call("cuMemAddressFree", self.address, self._size)


class Shared:
    """The judge's block, opened by legacy IPC; it stays open at its address."""

    def __init__(self, driver: Driver, size: int) -> None:
        self._call = driver.call
        self._handle = ""
        self.address = 0

    def show(self, descriptor: int, message: dict[str, Any]) -> None:
        if message["ipc_handle"] == self._handle:
            return
        self.close()
        handle, address = IpcHandle(), c_ulonglong()
        ctypes.memmove(byref(handle), bytes.fromhex(message["ipc_handle"]), 64)
        self._call("cuIpcOpenMemHandle_v2", byref(address), handle, LAZY_PEER)
        self._handle, self.address = message["ipc_handle"], address.value

    def hide(self) -> None: ...

    def close(self) -> None:
        if self._handle:
            self._call("cuIpcCloseMemHandle", self.address)
            self._handle = ""


class Array:
    """Mapped device memory as PyTorch's CUDA array interface, version 3."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 3,
        }  # fmt: skip
