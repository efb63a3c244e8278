"""How operands get from the judge to a worker and back: the seam, and shared memory on the host.

Check and timing are written once, against this; the CPU zoo exercises them for every transport.
"""

from __future__ import annotations

from typing import Protocol

import torch

from harness.judge.memory import HostMemory, Memory

_LIVE_BYTES = 256 << 20


class Transport(Protocol):
    """One way of sharing memory with workers."""

    @property
    def name(self) -> str:
        """`memfd`, `cuda-vmm` or `cuda-ipc`."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the judge makes inputs and computes truth."""
        ...

    @property
    def stops_with_process(self) -> bool:
        """Whether a frozen worker can change nothing more. On a device its kernels go on: there t1 is when
        the judge's own copy is complete."""
        ...

    @property
    def live_bytes(self) -> int:
        """The most that one arena may take."""
        ...

    def allocate(self, size: int, kept: int | None = None) -> Memory:
        """`size` bytes, of which snapshots copy the first `kept` (None: all). Raises DeviceError or OSError
        when there are none."""
        ...

    def before_reveal(self) -> None:
        """Flush caches, and wait until what the judge itself started is done. Comes before t0."""
        ...

    def wait(self) -> None:
        """Until what the judge itself started is done."""
        ...

    def facts(self) -> dict[str, str]:
        """For the record: how memory is shared, and why not otherwise."""
        ...

    def close(self) -> None:
        """Release all."""
        ...


class HostTransport:
    """Sealed memfds; the target `cpu`."""

    name = "memfd"
    stops_with_process = True
    live_bytes = _LIVE_BYTES

    def __init__(self, flush_bytes: int = 0) -> None:
        """`flush_bytes`: this much other memory is written before each reveal; 0 leaves the last-level cache
        as the judge's own writing of inputs left it."""
        self.device = torch.device("cpu")
        self._flush = torch.zeros(flush_bytes, dtype=torch.uint8)

    def allocate(self, size: int, kept: int | None = None) -> Memory:
        """A sealed memfd."""
        return HostMemory(size, kept)

    def before_reveal(self) -> None:
        """Push operands out of the caches, where asked to."""
        if self._flush.numel():
            self._flush.add_(1)

    def wait(self) -> None:
        """Nothing runs on the host by itself."""

    def facts(self) -> dict[str, str]:
        """What precedes a reveal."""
        flushed = self._flush.numel()
        return {"caches": f"{flushed >> 20} MiB written before each reveal" if flushed else "not flushed"}

    def close(self) -> None:
        """Nothing is held."""
