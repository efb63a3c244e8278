"""Memory that judge and worker share: the protocols, sealed memfds on the host, and device memory.

An allocation serves one reveal; only host memory may stay mapped in a worker, and is then written only while
that worker is frozen. Physical device memory that a worker has seen never holds later inputs before they are
revealed, since a hostile worker can keep it mapped: VMM memory (by descriptor) serves one reveal and is given
back; legacy IPC memory, which may not be freed while a worker has it open, holds data only from the reveal to
the snapshot.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import secrets
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from harness.device.cuda import (
    L2_CACHE_BYTES,
    MPS_ENABLED,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    POSIX_EXPORT,
    VIRTUAL_MEMORY,
    CudaError,
    Device,
    Driver,
)
from harness.errors import DeviceError
from harness.judge.device_kernels import FLUSH_BYTES, DeviceKernels
from harness.worker.cuda_driver import Array

_LIVE_BYTES = 256 << 20
"""Of an arena on the host."""


class Sizes(Protocol):
    """Bytes of one set in an arena, guards included; of its inputs; and of what a snapshot copies."""

    set_bytes: int
    input_bytes: int
    kept_bytes: int


@dataclass(frozen=True)
class Handle:
    fields: dict[str, Any] = field(default_factory=dict)
    """Merged into the `call` message."""
    descriptor: int | None = None
    """Sent with the message. Owned by the memory: the sender does not close it."""


class Memory(Protocol):
    data: torch.Tensor
    """(size,) uint8, on the judge's side."""

    def handle(self) -> Handle: ...

    @property
    def shared(self) -> torch.Tensor:
        """(size,) uint8: the memory that the worker wrote to."""
        return self.data

    def close(self) -> None: ...


class HostMemory(Memory):
    """A memfd that can be neither resized nor sealed further."""

    def __init__(self, size: int) -> None:
        """Raises OSError when there is no memory."""
        # The worker sees the name in /proc/self/maps: a random one tells it nothing.
        self.descriptor = os.memfd_create(secrets.token_hex(4), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, size)
        # Without these seals a worker could shrink the file and kill the judge with SIGBUS.
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
        self._map = mmap.mmap(self.descriptor, size)
        self.data = torch.frombuffer(self._map, dtype=torch.uint8)

    def handle(self) -> Handle:
        return Handle(descriptor=self.descriptor)

    def close(self) -> None:
        """Release descriptor, mapping and pages, which a descriptor that a worker holds would keep alive."""
        os.close(self.descriptor)
        del self.data
        self._map.madvise(mmap.MADV_REMOVE)
        self._map.close()


class HostTransport:
    name = "memfd"
    kernels = None
    stops_with_process = True
    """A frozen worker can change nothing more. On a device t1 is when a sample of the outputs was read."""
    pending_bytes = 1 << 62
    """Outputs of this many bytes are verified before a turn ends."""

    def __init__(self, flush_bytes: int = 0) -> None:
        """`flush_bytes`: how much other memory is written before each reveal; 0 does not flush caches."""
        self.device = torch.device("cpu")
        self._flush = torch.zeros(flush_bytes, dtype=torch.uint8)

    def allocate(self, size: int) -> Memory:
        """Raises OSError without memory."""
        return HostMemory(size)

    def before_plan(self) -> None: ...

    def most_sets(self, layout: Sizes, references: int) -> int:
        """Sets of one arena, where so many references keep their results."""
        return _LIVE_BYTES // layout.set_bytes

    def before_reveal(self) -> None:
        if self._flush.numel():
            self._flush.add_(1)

    def wait(self) -> None: ...

    def facts(self) -> dict[str, str]:
        flushed = self._flush.numel()
        return {"caches": f"{flushed >> 20} MiB written before each reveal" if flushed else "not flushed"}

    def close(self) -> None: ...


MPS_REFUSED = (
    "MPS runs, so that other processes may use the GPU while a kernel is timed: end it "
    "(echo quit | nvidia-cuda-mps-control), or set CUDA_MPS_PIPE_DIRECTORY to a folder without one"
)
_CACHED_SHARE = 16
"""Of device memory: most that PyTorch may keep unused in the judge while a worker runs (our choice)."""
ARENA_SHARE, _MOST_SHARE, _PENDING_SHARE = 0.40, 0.85, 0.05
"""Of device memory: one arena at most; with the judge's inputs of a batch and a probe as large, its copy of
outputs and those that references keep; what waits to be verified. The rest is for contexts and truth."""
_IPC_UNIT = 2 << 20
"""cuMemAlloc cuts smaller requests out of blocks of this size, and IPC shares whole blocks."""


def most_sets(layout: Sizes, device_bytes: int, references: int, copies: int = 1) -> int:
    """Sets of one arena, of which the judge has so many copies, on a device with that much memory, where so
    many references keep their results."""
    beside = copies * layout.set_bytes + 2 * layout.input_bytes + (1 + references) * layout.kept_bytes
    return int(min(ARENA_SHARE * device_bytes / layout.set_bytes, _MOST_SHARE * device_bytes / beside))


def tensor_at(pointer: int, size: int, device: torch.device) -> torch.Tensor:
    """(size,) uint8 over mapped memory at `pointer`, without a copy; on `cpu`, an address of this process."""
    if device.type == "cpu":
        return torch.frombuffer((ctypes.c_char * size).from_address(pointer), dtype=torch.uint8)
    return torch.as_tensor(Array(pointer, size), device=device)


class VmmMemory(Memory):
    def __init__(self, device: Device, size: int, tensors: torch.device) -> None:
        """`tensors`: the device of `data`. Raises CudaError."""
        self._device = device
        self._mapping = device.map(size)
        try:
            # A worker maps whole pages of 2 MiB: what lies behind `size` must hold nothing of an earlier use.
            device.fill(self._mapping.pointer, 0, self._mapping.size)
            device.synchronize()
            self._descriptor = device.export(self._mapping)
        except BaseException:
            device.unmap(self._mapping)
            raise
        self.data = tensor_at(self._mapping.pointer, size, tensors)

    def handle(self) -> Handle:
        """The descriptor and the number of bytes to map. Waits for writes to `data`."""
        self._device.synchronize()
        return Handle({"mapped_bytes": self._mapping.size}, self._descriptor)

    def close(self) -> None:
        """Give back address and descriptor. The memory itself is free once no worker has it."""
        self.data = torch.empty(0, dtype=torch.uint8)
        os.close(self._descriptor)
        self._device.unmap(self._mapping)


class SharedBlock:
    """The block that workers open by IPC; it grows, and is freed only when all workers have ended."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._blocks: list[tuple[int, int]] = []

    def of_size(self, size: int) -> tuple[int, int]:
        """(address, bytes) of a block of at least `size`. Raises CudaError."""
        if not self._blocks or self._blocks[-1][1] < size:
            least = max(size, 2 * self._blocks[-1][1] if self._blocks else 0)
            rounded = -(-least // _IPC_UNIT) * _IPC_UNIT
            # An outgrown block stays: a worker may still have it open, and reuse would show it later data.
            self._blocks.append((self._device.allocate(rounded), rounded))
        return self._blocks[-1]

    def close(self) -> None:
        while self._blocks:
            self._device.free(self._blocks.pop()[0])


class IpcMemory(Memory):
    """Private memory that is copied to the shared block when it is revealed: the figure is `hot`."""

    def __init__(self, device: Device, size: int, tensors: torch.device, block: SharedBlock) -> None:
        self._device = device
        self._pointer, self._bytes = block.of_size(size)
        self._ipc_handle = device.ipc_handle(self._pointer)
        self._shared = tensor_at(self._pointer, size, tensors)
        self.data = torch.empty(size, dtype=torch.uint8, device=tensors)

    @property
    def shared(self) -> torch.Tensor:
        return self._shared

    def handle(self) -> Handle:
        """Copies the data to the shared block, which reveals it: call this after t0."""
        self._shared.copy_(self.data)
        self._device.synchronize()
        return Handle({"ipc_handle": self._ipc_handle.hex()})

    def close(self) -> None:
        self._device.fill(self._pointer, 0, self._bytes)
        self._device.synchronize()
        self._shared = self.data = torch.empty(0, dtype=torch.uint8)


class TorchCache:
    """Device memory that PyTorch keeps in this process for later tensors; no other process can have it."""

    def unused_bytes(self, device: torch.device) -> int:
        if device.type != "cuda":
            return 0
        return torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)

    def free(self) -> None:
        torch.cuda.empty_cache()


class CudaTransport:
    def __init__(
        self,
        device: str | None = None,
        *,
        driver: Driver | None = None,
        tensors: torch.device | None = None,
        cache: TorchCache | None = None,
    ) -> None:
        """`device`: UUID or index. `driver`, `tensors`, `cache`: for a fake GPU whose memory is the host's.
        Raises DeviceError when there is no such GPU, it is shared by MPS or MIG, or neither way of sharing
        memory works."""
        self.gpu = Device(Driver() if driver is None else driver, device)
        self.device = torch.device("cuda", self.gpu.ordinal) if tensors is None else tensors
        self.stops_with_process = False
        self.kernels: DeviceKernels | None = None
        self._cache = TorchCache() if cache is None else cache
        self._block: SharedBlock | None = None
        try:
            self._refuse_shared()
            self._vmm_refused = self._why_no_vmm()
            if self._vmm_refused is not None:
                self._block = SharedBlock(self.gpu)
                self._try_ipc(self._block)
            self.pending_bytes = int(_PENDING_SHARE * self.gpu.total_bytes)
            self.kernels = DeviceKernels(self.gpu)
        except BaseException:
            self.close()
            raise

    def _refuse_shared(self) -> None:
        """Raises DeviceError for a GPU on which others may run while a worker is timed."""
        try:
            mps = self.gpu.attribute(MPS_ENABLED)
        except CudaError:  # a driver older than the attribute
            mps = 0
        if mps:
            raise DeviceError(MPS_REFUSED)
        try:
            self.gpu.call("cuCtxResetPersistingL2Cache")
        except CudaError as error:
            if error.code != NOT_SUPPORTED:
                raise
            raise DeviceError(
                f"{self.gpu.name} cannot reset its L2 cache between calls, as a MIG instance or a virtual GPU"
                " cannot: use a whole GPU (nvidia-smi -mig 0, as root)"
            ) from error

    def _why_no_vmm(self) -> str | None:
        """Why memory cannot be shared by descriptor; None where it can."""
        for number, what in ((VIRTUAL_MEMORY, "virtual memory"), (POSIX_EXPORT, "export by descriptor")):
            if not self.gpu.attribute(number):
                return f"the device does not support {what}"
        try:
            mapping = self.gpu.map(1)
            try:
                os.close(self.gpu.export(mapping))
            finally:
                self.gpu.unmap(mapping)
        except DeviceError as error:
            return str(error)
        return None

    def most_sets(self, layout: Sizes, references: int) -> int:
        """As on the host."""
        return most_sets(layout, self.gpu.total_bytes, references, 1 if self._block is None else 2)

    def _try_ipc(self, block: SharedBlock) -> None:
        try:
            self.gpu.ipc_handle(block.of_size(1)[0])
        except DeviceError as error:
            reasons = f"By descriptor: {self._vmm_refused}. By IPC: {error}"
            raise DeviceError(f"device memory cannot be shared. {reasons}") from error

    @property
    def name(self) -> str:
        return "cuda-vmm" if self._block is None else "cuda-ipc"

    def allocate(self, size: int) -> Memory:
        """As on the host. Where memory is short, what PyTorch has cached is returned to the device first."""
        try:
            return self._allocate(size)
        except CudaError as error:
            if error.code != OUT_OF_MEMORY:
                raise
        self._cache.free()
        return self._allocate(size)

    def before_plan(self) -> None:
        """Return what PyTorch has cached of an earlier workload: workers need memory of their own."""
        self._cache.free()

    def _allocate(self, size: int) -> Memory:
        if self._block is None:
            return VmmMemory(self.gpu, size, self.device)
        return IpcMemory(self.gpu, size, self.device, self._block)

    def before_reveal(self) -> None:
        """Reset L2 lines that a worker made persistent, write more than L2 holds, and wait. A large cache of
        PyTorch is emptied."""
        if self._cache.unused_bytes(self.device) > self.gpu.total_bytes // _CACHED_SHARE:
            self._cache.free()
        self.gpu.call("cuCtxResetPersistingL2Cache")
        assert self.kernels is not None
        self.kernels.flush()
        self.gpu.synchronize()

    def wait(self) -> None:
        self.gpu.synchronize()

    def facts(self) -> dict[str, str]:
        major, minor = self.gpu.driver.version
        facts = {
            "transport": self.name,
            "device": self.gpu.name,
            "driver": f"CUDA {major}.{minor}",
            "L2": f"{self.gpu.attribute(L2_CACHE_BYTES) >> 20} MiB",
            "caches": f"persisting lines reset, {FLUSH_BYTES >> 20} MiB written before each reveal",
        }
        if self._vmm_refused is not None:
            facts["not by descriptor"] = self._vmm_refused
            facts["reveal"] = "hot: inputs are copied while the clock runs"
        return facts

    def close(self) -> None:
        if self.kernels is not None:
            self.kernels.close()
        if self._block is not None:
            self._block.close()
        self.gpu.close()


Transport = HostTransport | CudaTransport
