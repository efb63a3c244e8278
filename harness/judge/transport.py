"""Memory that judge and worker share: the protocols, and sealed memfds on the host.

An allocation serves one reveal; only host memory may stay mapped in a worker, and is then written only while
that worker is frozen.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

_LIVE_BYTES = 256 << 20


@dataclass(frozen=True)
class Handle:
    fields: dict[str, Any] = field(default_factory=dict)
    """Merged into the `call` message."""
    descriptor: int | None = None
    """Sent with the message. Owned by the memory: the sender does not close it."""


class Memory(Protocol):
    size: int
    data: torch.Tensor
    """(size,) uint8, on the judge's side."""

    def handle(self) -> Handle: ...

    @property
    def shared(self) -> torch.Tensor:
        """(size,) uint8: the memory that the worker wrote to."""

    def take(self) -> torch.Tensor:
        """(kept,) uint8: a private copy, complete when this returns."""

    def close(self) -> None: ...


class Transport(Protocol):
    @property
    def name(self) -> str:
        """`memfd`, `cuda-vmm` or `cuda-ipc`."""

    device: torch.device
    """Where the judge makes inputs and computes truth."""
    stops_with_process: bool
    """Whether a frozen worker can change nothing more. On a device t1 is when the judge's copy is
    complete."""
    live_bytes: int
    """Maximum size of one arena."""

    def allocate(self, size: int, kept: int | None = None) -> Memory:
        """Snapshots copy the first `kept` bytes (default: all). Raises DeviceError or OSError without
        memory."""

    def before_reveal(self) -> None:
        """Flush caches and wait for the judge's own work; called before t0."""

    def wait(self) -> None: ...

    def facts(self) -> dict[str, str]: ...

    def close(self) -> None: ...


class HostMemory:
    """A memfd that can be neither resized nor sealed further."""

    def __init__(self, size: int, kept: int | None = None) -> None:
        """Raises OSError when there is no memory."""
        self.size = size
        self._kept = size if kept is None else kept
        # The worker sees the name in /proc/self/maps: a random one tells it nothing.
        self.descriptor = os.memfd_create(secrets.token_hex(4), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, size)
        # Without these seals a worker could shrink the file and kill the judge with SIGBUS.
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
        self._map = mmap.mmap(self.descriptor, size)
        self.data = torch.frombuffer(self._map, dtype=torch.uint8)

    def populate(self) -> None:
        """Touch every page, so that none is charged to a worker that maps it."""
        self.data.zero_()

    def handle(self) -> Handle:
        return Handle(descriptor=self.descriptor)

    @property
    def shared(self) -> torch.Tensor:
        return self.data

    def take(self) -> torch.Tensor:
        return self.data[: self._kept].clone()

    def close(self) -> None:
        """Release descriptor, mapping and pages, which a descriptor that a worker holds would keep alive."""
        os.close(self.descriptor)
        del self.data
        self._map.madvise(mmap.MADV_REMOVE)
        self._map.close()


class HostTransport:
    name = "memfd"
    stops_with_process = True
    live_bytes = _LIVE_BYTES

    def __init__(self, flush_bytes: int = 0) -> None:
        """`flush_bytes`: how much other memory is written before each reveal; 0 does not flush caches."""
        self.device = torch.device("cpu")
        self._flush = torch.zeros(flush_bytes, dtype=torch.uint8)

    def allocate(self, size: int, kept: int | None = None) -> Memory:
        return HostMemory(size, kept)

    def before_reveal(self) -> None:
        if self._flush.numel():
            self._flush.add_(1)

    def wait(self) -> None: ...

    def facts(self) -> dict[str, str]:
        flushed = self._flush.numel()
        return {"caches": f"{flushed >> 20} MiB written before each reveal" if flushed else "not flushed"}

    def close(self) -> None: ...
