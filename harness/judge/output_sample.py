"""A secret sample of what a reveal's calls write: when all of it has been read on a device, the clock stops.

Work on a device outlives the process that launched it, so a worker can answer before its outputs are there.
A sampled position whose bytes change after t1 shows that: of n sampled positions, work that leaves a share f
of an output undone escapes with probability (1 - f)^n.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from harness.judge.guarded_buffers import Arena, Slot, Snapshot
from harness.judge.keystream import SecretGenerator
from harness.judge.problem import Tensors
from harness.judge.shared_memory import CudaTransport

POSITIONS: Final = 4096
"""Per output and call; every position of an output that has no more."""
_WORDS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class OutputSample:
    """Positions drawn under a fresh key before t0, one in each of equal parts of what a call may write."""

    def __init__(self, arena: Arena, inputs: Sequence[Tensors], transport: CudaTransport) -> None:
        """`inputs`: of every set, whose masks say what a call may write. Raises DeviceError."""
        assert transport.kernels is not None
        self._arena, self._kernels, self._wait = arena, transport.kernels, transport.wait
        generator = SecretGenerator(device=transport.device)
        layout = arena.layout
        self._chosen: dict[int, list[tuple[int, torch.Tensor]]] = {}
        """By element size: a set, and (n,) int64 byte offsets in it."""
        for slot in layout.written:
            width = slot.dtype.itemsize
            for index, one in enumerate(inputs):
                inside = slot.offset + width * positions_of(slot, one, generator)
                self._chosen.setdefault(width, []).append((index, inside))
        self._there = {
            width: torch.cat([inside + index * layout.set_bytes for index, inside in chosen])
            for width, chosen in self._chosen.items()
        }
        self._read = {
            width: torch.empty(len(there), dtype=_WORDS[width], device=there.device)
            for width, there in self._there.items()
        }
        transport.wait()

    def read(self) -> None:
        """Read every position from the memory that the worker writes to; complete when this returns. Raises
        DeviceError."""
        base = self._arena.shared.data_ptr()
        for width, there in self._there.items():
            out = self._read[width]
            self._kernels.gather(base, there.data_ptr(), len(there), width, out.data_ptr())
        self._wait()

    def late(self, snapshot: Snapshot) -> int:
        """How many positions differ between read() and a snapshot that was taken later."""
        differing = 0
        for width, chosen in self._chosen.items():
            kept = [snapshot[index].view(_WORDS[width])[inside // width] for index, inside in chosen]
            differing += int((torch.cat(kept) != self._read[width]).sum())
        return differing


def positions_of(slot: Slot, inputs: Tensors, generator: SecretGenerator) -> torch.Tensor:
    """(n,) int64 element positions in an output, ascending: at most POSITIONS of those its mask allows."""
    mask = None if slot.operand.mask is None else inputs[slot.operand.mask].reshape(-1)
    allowed = None if mask is None else mask.nonzero().reshape(-1)
    count = slot.size // slot.dtype.itemsize if allowed is None else len(allowed)
    parts = min(count, POSITIONS)
    if not parts:
        return torch.empty(0, dtype=torch.int64, device=generator.device)
    edges = torch.arange(parts + 1, device=generator.device) * count // parts
    words = generator.integers((parts,), 0, 1 << 31)
    chosen = edges[:-1] + words % (edges[1:] - edges[:-1])
    return chosen if allowed is None else allowed[chosen]
