"""What lies in shared memory: one arena holds K sets of a problem's operands.

An arena is filled before a worker can map it, or, in memory that stays mapped, while the worker is frozen: so
nothing of a later call's inputs can be seen early. The judge's private copy, not the shared memory, is what
truth is computed from.

Layout of a set: guard | operand | guard | operand | ... | guard, operands aligned to 256 bytes plus
one page, sets aligned to pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.errors import HarnessBug
from harness.judge.memory import Handle, HostMemory, Memory
from harness.judge.problem import Problem, Tensors
from harness.judge.transport import Transport
from harness.judge.values import changes
from harness.records import Operand
from harness.records.task import Arrangement

GUARD_BYTES = 4096
_ALIGN = 4096
_GUARD_BYTE = 0xA5


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


@dataclass(frozen=True)
class Slot:
    """Where an operand lies in a set."""

    operand: Operand
    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    size: int
    """Bytes from the first to behind the last element, whatever lies between them."""
    strides: tuple[int, ...] | None = None
    """In elements; None is contiguous."""

    def pack(self, value: torch.Tensor) -> torch.Tensor:
        """The bytes of `value` as they lie in memory, (size,) uint8; gaps are guard bytes."""
        if self.strides is None:
            return value.reshape(-1).view(torch.uint8)
        packed = torch.full((self.size,), _GUARD_BYTE, dtype=torch.uint8, device=value.device)
        for axis, stride in enumerate(self.strides):
            value = value.narrow(axis, 0, 1) if stride == 0 else value  # one copy serves all
        packed.view(self.dtype).as_strided(value.shape, self.strides).copy_(value)
        return packed

    def unpack(self, data: torch.Tensor) -> torch.Tensor:
        """The operand in its bytes `data`, (size,) uint8: a view where it is contiguous."""
        values = data.view(self.dtype)
        if self.strides is None:
            return values.reshape(self.shape)
        return values.as_strided(self.shape, self.strides, values.storage_offset())


def _strides(operand: Operand, shape: tuple[int, ...], layout: Arrangement) -> tuple[int, ...] | None:
    """Strides of an operand in `layout`; None where it is contiguous: what a project writes always is."""
    if operand.role != "in" or not shape or 0 in shape or layout in ("contiguous", "misaligned"):
        return None
    axes = list(range(len(shape)))
    if layout == "transposed" and len(shape) > 1:
        axes[-1], axes[-2] = axes[-2], axes[-1]
    gap = 2 if layout == "stepped" else 1
    strides, step = [0] * len(shape), gap
    for axis in reversed(axes):
        strides[axis] = step
        step *= shape[axis]
    if layout == "expanded":
        strides[0] = 0
    return tuple(strides)


_PIECE_BYTES = 1 << 26


def _all_equal(data: torch.Tensor, byte: int) -> bool:
    return bool((data == byte).all())


def _same_bytes(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Of large operands: piece by piece, since a comparison makes a copy of its own."""
    pieces = (slice(start, start + _PIECE_BYTES) for start in range(0, one.numel(), _PIECE_BYTES))
    return all(torch.equal(one[piece], two[piece]) for piece in pieces)


class Layout:
    """Offsets of a problem's operands; the same for every set, so addresses repeat and values do not."""

    def __init__(self, problem: Problem, arrangement: Arrangement = "contiguous") -> None:
        """`arrangement`: how operands lie. `transposed` (last two axes), `stepped` (every second element) and
        `expanded` (stride 0 along the first axis) are for `in` operands that may be changed (values.changes);
        `misaligned` puts every operand one element behind a page."""
        self.slots: list[Slot] = []
        free = {o.name for o in changes(problem)} if arrangement == "expanded" else None
        cursor = GUARD_BYTES
        for operand in problem.task.operands:
            shape, dtype = problem.shape(operand), problem.operand_dtype(operand)
            strides = _strides(operand, shape, arrangement)
            if free is not None and operand.name not in free:
                strides = None
            size = math.prod(shape) * dtype.itemsize
            if strides is not None:
                size = (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))) * dtype.itemsize
            cursor += dtype.itemsize if arrangement == "misaligned" else 0
            self.slots.append(Slot(operand, shape, dtype, cursor, size, strides))
            cursor = _aligned(cursor + size) + GUARD_BYTES
        self.set_bytes = _aligned(cursor)
        self.large = problem.large
        outs = [slot.offset + slot.size for slot in self.slots if slot.operand.role != "in"]
        self.kept_bytes = max(outs)
        """Of a set, from its beginning: all that a snapshot of a large one copies. Outputs come first."""

    def guards(self) -> list[tuple[str, int, int]]:
        """(operand beside it, start, end) of everything in a set that is no operand."""
        bands, cursor = [], 0
        for slot in self.slots:
            bands.append((slot.operand.name, cursor, slot.offset))
            cursor = slot.offset + slot.size
        return [*bands, (self.slots[-1].operand.name, cursor, self.set_bytes)]

    def describe(self) -> list[dict[str, object]]:
        """What a worker is told: names, dtypes, shapes, offsets; no values."""
        return [
            {
                "name": s.operand.name,
                "role": s.operand.role,
                "dtype": str(s.dtype).removeprefix("torch."),
                "shape": list(s.shape),
                "offset": s.offset,
                **({} if s.strides is None else {"strides": list(s.strides)}),
                **({"keyword": True} if s.operand.keyword else {}),
            }
            for s in self.slots
        ]


@dataclass(frozen=True)
class SetResult:
    """What a worker left in one set: private copies."""

    outputs: tuple[torch.Tensor, ...]
    """In the order of Task.outputs."""
    changed_inputs: tuple[str, ...]
    """Operands, or parts of them, that only may be read."""
    changed_guards: tuple[str, ...]
    """Operands next to which a guard band was written."""


class Arena:
    """One allocation with K filled sets."""

    def __init__(
        self,
        layout: Layout,
        sets: Sequence[Tensors],
        poison: int,
        transport: Transport | None = None,
        resident: Memory | None = None,
    ) -> None:
        """`sets`: inputs of each set; `poison`: the byte (0xFF is NaN, or 0x00) that fills outputs.

        `resident`: memory that stays mapped in the worker, which must be frozen now; without it the arena
        allocates its own, host memory where no transport is named. Raises DeviceError or OSError when there
        is no memory.
        """
        self.layout = layout
        self._inputs = list(sets)
        self._poison = poison
        self._intact: tuple[list[str], list[str]] | None = None
        """Of a large set, when its snapshot was taken."""
        self.size = layout.set_bytes * len(sets)
        self.resident = resident is not None
        if layout.large and len(sets) != 1:
            raise HarnessBug("a large problem has one set of operands in memory")
        self._kept = layout.kept_bytes if layout.large else self.size
        if resident is not None:
            self._memory = resident
        else:
            make = HostMemory if transport is None else transport.allocate
            self._memory = make(self.size, self._kept)
        self._bytes = self._memory.data[: self.size]
        self._fill()

    def _fill(self) -> None:
        for index, inputs in enumerate(self._inputs):
            base = index * self.layout.set_bytes
            for _, start, end in self.layout.guards():
                self._bytes[base + start : base + end] = _GUARD_BYTE
            for slot in self.layout.slots:
                place = self._place(index, slot)
                if slot.operand.role == "out":
                    place.fill_(self._poison)
                else:
                    place.copy_(slot.pack(inputs[slot.operand.name]))

    def _place(self, index: int, slot: Slot) -> torch.Tensor:
        start = index * self.layout.set_bytes + slot.offset
        return self._bytes[start : start + slot.size]

    def handle(self) -> Handle:
        """For the worker; empty where it has the memory mapped already."""
        return Handle() if self.resident else self._memory.handle()

    def snapshot(self) -> torch.Tensor:
        """A private copy of everything, as bytes: afterwards the worker can change nothing.

        Of a large set the outputs alone: what may not be written is compared in place, right after.
        """
        copy = self._bytes[: self._kept].clone() if self.resident else self._memory.take()
        if self.layout.large:
            self._intact = self._integrity(0, self._memory.left)
        return copy

    def results(self, snapshot: torch.Tensor) -> list[SetResult]:
        """What each set holds, from a snapshot."""
        return [self._result(index, snapshot) for index in range(len(self._inputs))]

    def _result(self, index: int, snapshot: torch.Tensor) -> SetResult:
        base = index * self.layout.set_bytes
        outputs = [
            slot.unpack(snapshot[base + slot.offset : base + slot.offset + slot.size])
            for slot in self.layout.slots
            if slot.operand.role != "in"
        ]
        changed, guards = self._intact or self._integrity(index, snapshot)
        return SetResult(tuple(outputs), tuple(changed), tuple(dict.fromkeys(guards)))

    def _integrity(self, index: int, data: torch.Tensor) -> tuple[list[str], list[str]]:
        """(operands, guard bands) that a worker changed and may not, in a whole set of `data`."""
        base, changed = index * self.layout.set_bytes, []
        for slot in self.layout.slots:
            found = data[base + slot.offset : base + slot.offset + slot.size]
            if slot.operand.role == "in":
                if not _same_bytes(found, slot.pack(self._inputs[index][slot.operand.name])):
                    changed.append(slot.operand.name)
            elif slot.operand.mask is not None and self._wrote_unmasked(index, slot, found):
                changed.append(f"{slot.operand.name} where {slot.operand.mask} is false")
        guards = [
            name
            for name, start, end in self.layout.guards()
            if not _all_equal(data[base + start : base + end], _GUARD_BYTE)
        ]
        return changed, guards

    def _wrote_unmasked(self, index: int, slot: Slot, data: torch.Tensor) -> bool:
        """Whether a `partial` operand's bytes changed in an element that its mask leaves out."""
        inputs = self._inputs[index]
        before = inputs[slot.operand.name].reshape(-1).view(torch.uint8)
        changed = (data != before).reshape(-1, slot.dtype.itemsize).any(dim=1)
        return bool((changed & ~inputs[str(slot.operand.mask)].reshape(-1)).any())

    def close(self) -> None:
        """Release the memory, unless it is resident."""
        del self._bytes
        if not self.resident:
            self._memory.close()
