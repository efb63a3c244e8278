"""One GPU in this process: its primary context, and memory by address.

A step that fails gives back what the steps before it took.
"""

from __future__ import annotations

import ctypes
import uuid
from ctypes import byref, c_int, c_size_t, c_ulonglong, c_void_p
from dataclasses import dataclass
from typing import Any

from harness.device.cuda.driver import (
    GRANULARITY_MINIMUM,
    IPC_HANDLE_BYTES,
    ON_DEVICE,
    PINNED,
    POSIX_DESCRIPTOR,
    READ_WRITE,
    UUID_BYTES,
    Access,
    AllocationProperties,
    Driver,
    IpcHandle,
    Location,
)
from harness.errors import DeviceError

_NAME_BYTES = 256


@dataclass(frozen=True)
class Mapping:
    """Physical memory at an address."""

    pointer: int
    size: int
    """Bytes, a multiple of the granularity."""
    allocation: int


class Device:
    """A device that is open. Close it when done."""

    def __init__(self, driver: Driver, device: str | None = None) -> None:
        """`device`: a UUID as NVML writes it, or an index; the first one where there is none named.

        Raises DeviceError when there is no such device, or it cannot be opened.
        """
        self.driver = driver
        driver.call("cuInit", 0)
        self.ordinal = self._find(device)
        context = c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", byref(context), self.ordinal)
        self._context: c_void_p | None = context
        self.name = self._text()

    # --- which -----------------------------------------------------------------------------------

    def _find(self, device: str | None) -> int:
        count = c_int()
        self.driver.call("cuDeviceGetCount", byref(count))
        uuids = [self._uuid(ordinal) for ordinal in range(count.value)]
        wanted = "0" if device is None else device
        if wanted.isdecimal() and int(wanted) < len(uuids):
            return int(wanted)
        # "MIG-" and "GPU-" stand before the same sixteen bytes.
        name = wanted.partition("-")[2].lower()
        if name in uuids:
            return uuids.index(name)
        raise DeviceError(
            f"no GPU {wanted} among the {len(uuids)} that this process sees; nvidia-smi -L lists them"
        )

    def _uuid(self, ordinal: int) -> str:
        data = ctypes.create_string_buffer(UUID_BYTES)
        self.driver.call("cuDeviceGetUuid_v2", data, ordinal)
        return str(uuid.UUID(bytes=data.raw))

    def _text(self) -> str:
        name = ctypes.create_string_buffer(_NAME_BYTES)
        self.driver.call("cuDeviceGetName", name, _NAME_BYTES, self.ordinal)
        return name.value.decode(errors="replace")

    def attribute(self, number: int) -> int:
        """A CUdevice_attribute."""
        value = c_int()
        self.driver.call("cuDeviceGetAttribute", byref(value), number, self.ordinal)
        return value.value

    # --- context ---------------------------------------------------------------------------------

    def call(self, name: str, *arguments: Any) -> None:
        """A call that needs the context, which is current per thread. Raises CudaError."""
        self.driver.call("cuCtxSetCurrent", self._context)
        self.driver.call(name, *arguments)

    def synchronize(self) -> None:
        """Wait for everything that this process started on the device, PyTorch's work too."""
        self.call("cuCtxSynchronize")

    @property
    def total_bytes(self) -> int:
        """Of device memory."""
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return total.value

    def close(self) -> None:
        """Give the context back. Safe to call twice."""
        if self._context is not None:
            self._context = None
            self.driver.call("cuDevicePrimaryCtxRelease_v2", self.ordinal)

    # --- memory ----------------------------------------------------------------------------------

    def _properties(self) -> AllocationProperties:
        return AllocationProperties(
            type=PINNED, handle_types=POSIX_DESCRIPTOR, location=Location(ON_DEVICE, self.ordinal)
        )

    @property
    def granularity(self) -> int:
        """Bytes: sizes of mappings are multiples of it."""
        size, properties = c_size_t(), self._properties()
        self.call("cuMemGetAllocationGranularity", byref(size), byref(properties), GRANULARITY_MINIMUM)
        return size.value

    def map(self, size: int) -> Mapping:
        """New physical memory of at least `size` bytes, at an address of its own. Raises CudaError."""
        unit = self.granularity
        size = -(-size // unit) * unit
        allocation, pointer, properties = c_ulonglong(), c_ulonglong(), self._properties()
        self.call("cuMemCreate", byref(allocation), size, byref(properties), 0)
        try:
            self.call("cuMemAddressReserve", byref(pointer), size, 0, 0, 0)
            try:
                self._map_at(pointer.value, size, allocation.value)
            except DeviceError:
                self.call("cuMemAddressFree", pointer.value, size)
                raise
        except DeviceError:
            self.call("cuMemRelease", allocation.value)
            raise
        return Mapping(pointer.value, size, allocation.value)

    def _map_at(self, pointer: int, size: int, allocation: int) -> None:
        self.call("cuMemMap", pointer, size, 0, allocation, 0)
        try:
            access = Access(Location(ON_DEVICE, self.ordinal), READ_WRITE)
            self.call("cuMemSetAccess", pointer, size, byref(access), 1)
        except DeviceError:
            self.call("cuMemUnmap", pointer, size)
            raise

    def unmap(self, mapping: Mapping) -> None:
        """Give up a mapping; its memory lives on while others have it."""
        self.synchronize()
        self.call("cuMemUnmap", mapping.pointer, mapping.size)
        self.call("cuMemAddressFree", mapping.pointer, mapping.size)
        self.call("cuMemRelease", mapping.allocation)

    def export(self, mapping: Mapping) -> int:
        """A file descriptor for a mapping's memory, the caller's to close. Raises CudaError where refused."""
        descriptor = c_int(-1)
        self.call("cuMemExportToShareableHandle", byref(descriptor), mapping.allocation, POSIX_DESCRIPTOR, 0)
        return descriptor.value

    def allocate(self, size: int) -> int:
        """The address of `size` bytes of plain device memory."""
        pointer = c_ulonglong()
        self.call("cuMemAlloc_v2", byref(pointer), size)
        return pointer.value

    def free(self, pointer: int) -> None:
        """Give plain memory back."""
        self.call("cuMemFree_v2", pointer)

    def ipc_handle(self, pointer: int) -> bytes:
        """What another process opens plain memory by. Raises CudaError where refused."""
        handle = IpcHandle()
        self.call("cuIpcGetMemHandle", byref(handle), pointer)
        return ctypes.string_at(byref(handle), IPC_HANDLE_BYTES)

    def fill(self, pointer: int, byte: int, size: int) -> None:
        """Start setting bytes; synchronize() ends it."""
        self.call("cuMemsetD8Async", pointer, byte, size, None)

    def copy(self, to: int, source: int, size: int) -> None:
        """Copy on the device, and wait."""
        self.call("cuMemcpyDtoD_v2", to, source, size)
        # A copy within a device may return before it is complete.
        self.synchronize()
