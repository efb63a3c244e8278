"""Memory that judge and worker share: the seam, and its form on the host.

An allocation is either handed over filled and serves one reveal, or (host memory, while a project is timed)
it stays mapped in one worker and is only written while that worker is frozen.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch


@dataclass(frozen=True)
class Handle:
    """What a worker needs to map an allocation."""

    fields: dict[str, Any] = field(default_factory=dict)
    """Goes into the `call` message."""
    descriptor: int | None = None
    """Travels beside it. Stays the memory's: whoever sends it does not close it."""


class Memory(Protocol):
    """One allocation."""

    @property
    def data(self) -> torch.Tensor:
        """(size,) uint8, on the judge's side."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def handle(self) -> Handle:
        """For the worker."""
        ...

    @property
    def left(self) -> torch.Tensor:
        """(size,) uint8: what a worker has left, in the memory that it shares."""
        ...

    def take(self) -> torch.Tensor:
        """A private copy of the bytes that are kept, (kept,) uint8, complete when this returns."""
        ...

    def close(self) -> None:
        """Release the judge's hold."""
        ...


class HostMemory:
    """A memfd that can be neither resized nor sealed further."""

    def __init__(self, size: int, kept: int | None = None) -> None:
        """`size`: bytes, above 0; `kept`: of them, from the beginning, what `take` copies (None: all).

        Raises OSError when there is no memory.
        """
        self.size = size
        self._kept = size if kept is None else kept
        # A random name: the worker sees it in /proc/self/maps, and it says nothing.
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self.descriptor = os.memfd_create(secrets.token_hex(4), flags)
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
        """The descriptor says all."""
        return Handle(descriptor=self.descriptor)

    @property
    def left(self) -> torch.Tensor:
        """The memory itself."""
        return self.data

    def take(self) -> torch.Tensor:
        """A private copy of what is kept."""
        return self.data[: self._kept].clone()

    def close(self) -> None:
        """Release the descriptor and the mapping, and all pages: a worker may have kept its descriptor, and
        what it holds would be charged to the judge."""
        os.close(self.descriptor)
        del self.data
        self._map.madvise(mmap.MADV_REMOVE)
        self._map.close()
