"""A secret sample of what a reveal's calls write: when all of it has been read on a device, the clock stops.

Work on a device outlives the process that launched it, so a worker can answer before its outputs are there.
A sampled position whose bytes change after t1 shows that: of n sampled positions, work that leaves a share f
of an output undone escapes with probability (1 - f)^n.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from harness.judge.guarded_buffers import Arena, Slot
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
        found: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        for slot in layout.written:
            positions = [positions_of(slot, one, generator) for one in inputs]
            for index, chosen in enumerate(positions):
                inside = slot.offset + chosen * slot.dtype.itemsize
                pair = inside + index * layout.set_bytes, inside + index * layout.kept_bytes
                found.setdefault(slot.dtype.itemsize, []).append(pair)
        self._groups = [
            (width, torch.cat([there for there, _ in pairs]), torch.cat([here for _, here in pairs]))
            for width, pairs in found.items()
        ]
        """Element size; (n,) int64 byte offsets in the arena, and the same in a snapshot of it."""
        self._read = [
            torch.empty(len(there), dtype=_WORDS[width], device=there.device)
            for width, there, _ in self._groups
        ]
        transport.wait()

    def read(self) -> None:
        """Read every position from the memory that the worker writes to; complete when this returns. Raises
        DeviceError."""
        base = self._arena.shared.data_ptr()
        for (width, there, _), out in zip(self._groups, self._read, strict=True):
            self._kernels.gather(base, there.data_ptr(), len(there), width, out.data_ptr())
        self._wait()

    def late(self, snapshot: torch.Tensor) -> int:
        """How many positions differ between read() and a snapshot, (sets, kept_bytes) uint8, taken later."""
        kept = snapshot.reshape(-1)
        pairs = zip(self._groups, self._read, strict=True)
        return sum(
            int((kept.view(_WORDS[width])[here // width] != out).sum()) for (width, _, here), out in pairs
        )


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
