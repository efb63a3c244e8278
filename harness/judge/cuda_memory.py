"""Device memory that a worker can map: by file descriptor, or, where that is refused, by CUDA's legacy IPC.

Physical memory that a worker has seen never holds later inputs before they are revealed, since a hostile
worker can keep it mapped. So VMM memory serves one reveal and is given back; IPC memory, which may not be
freed while a worker has it open, holds data only from the reveal to the snapshot.
"""

from __future__ import annotations

import os

import torch

from harness.device.cuda.device import Device
from harness.judge.cuda_view import tensor_at
from harness.judge.memory import Handle

_IPC_UNIT = 2 << 20
"""cuMemAlloc cuts smaller requests out of blocks of this size, and IPC shares whole blocks."""


class VmmMemory:
    """An allocation that is exported as a file descriptor."""

    def __init__(self, device: Device, size: int, tensors: torch.device, kept: int | None = None) -> None:
        """`size`: bytes, above 0; `tensors`: where `data` lies; `kept`: of the bytes, from the beginning,
        what `take` copies (None: all). Raises CudaError."""
        self.size = size
        self._kept = size if kept is None else kept
        self._device = device
        self._tensors = tensors
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
        # Made now, so that the snapshot's own time is that of a copy.
        self._copy: torch.Tensor | None = torch.empty(self._kept, dtype=torch.uint8, device=tensors)

    @property
    def left(self) -> torch.Tensor:
        """The memory itself."""
        return self.data

    def handle(self) -> Handle:
        """The descriptor, and how many bytes there are to map. Waits for what was written to `data`."""
        self._device.synchronize()
        return Handle({"mapped_bytes": self._mapping.size}, self._descriptor)

    def take(self) -> torch.Tensor:
        """A private copy of what is kept."""
        kept = self.data[: self._kept]
        copy = torch.empty_like(kept) if self._copy is None else self._copy
        self._copy = None
        copy.copy_(kept)
        self._device.synchronize()
        return copy

    def close(self) -> None:
        """Give back address and descriptor. The memory itself is free once no worker has it."""
        self.data = torch.empty(0, dtype=torch.uint8)
        self._copy = None
        os.close(self._descriptor)
        self._device.unmap(self._mapping)


class SharedBlock:
    """The one block that workers open by IPC; it grows, and is freed only when all workers are gone."""

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
        """Free all blocks."""
        while self._blocks:
            self._device.free(self._blocks.pop()[0])


class IpcMemory:
    """Private memory that is copied to the shared block when it is revealed: the figure is `hot`."""

    def __init__(
        self,
        device: Device,
        size: int,
        tensors: torch.device,
        shared: SharedBlock,
        kept: int | None = None,
    ) -> None:
        """As VmmMemory. Raises CudaError."""
        self.size = size
        self._kept = size if kept is None else kept
        self._device = device
        self._pointer, self._bytes = shared.of_size(size)
        self._ipc_handle = device.ipc_handle(self._pointer)
        self._shared = tensor_at(self._pointer, size, tensors)
        self.data = torch.empty(size, dtype=torch.uint8, device=tensors)
        self._copy: torch.Tensor | None = torch.empty_like(self.data[: self._kept])

    @property
    def left(self) -> torch.Tensor:
        """The shared block."""
        return self._shared

    def handle(self) -> Handle:
        """Reveals: call it when the clock runs."""
        self._shared.copy_(self.data)
        self._device.synchronize()
        return Handle({"ipc_handle": self._ipc_handle.hex()})

    def take(self) -> torch.Tensor:
        """A private copy of what is kept."""
        kept = self._shared[: self._kept]
        copy = torch.empty_like(kept) if self._copy is None else self._copy
        self._copy = None
        copy.copy_(kept)
        self._device.synchronize()
        return copy

    def close(self) -> None:
        """Wipe what was shared."""
        self._device.fill(self._pointer, 0, self._bytes)
        self._device.synchronize()
        self._shared = self.data = torch.empty(0, dtype=torch.uint8)
        self._copy = None
