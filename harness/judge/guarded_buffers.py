"""What lies in shared memory: one arena holds K sets of a problem's operands.

An arena is filled before a worker can map it or, in memory that stays mapped, while the worker is frozen.
Truth is computed from the judge's private copy of the inputs. Layout of a set: guard | operand | guard |
operand | ... | guard, operands aligned to 256 bytes plus one page, sets aligned to pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import torch

from harness.errors import HarnessBug
from harness.judge.adversarial import changes
from harness.judge.problem import Problem, Tensors
from harness.judge.shared_memory import Handle, HostMemory, Memory, Transport
from harness.records import Operand
from harness.records.task import Arrangement

GUARD_BYTES = 4096
_ALIGN = 4096
_GUARD_BYTE = 0xA5
_PIECE = 1 << 26


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


@dataclass(frozen=True)
class Slot:
    operand: Operand
    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    size: int
    """Bytes from the first to behind the last element, gaps included."""
    strides: tuple[int, ...] | None = None

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
        """The operand in its bytes `data`, (size,) uint8: a view."""
        values = data.view(self.dtype)
        if self.strides is None:
            return values.reshape(self.shape)
        return values.as_strided(self.shape, self.strides, values.storage_offset())


def _strides(operand: Operand, shape: tuple[int, ...], layout: Arrangement) -> tuple[int, ...] | None:
    if operand.role != "in" or not shape or 0 in shape or layout in ("contiguous", "misaligned"):
        return None
    axes = list(range(len(shape)))
    if layout == "transposed" and len(shape) > 1:
        axes[-1], axes[-2] = axes[-2], axes[-1]
    strides, step = [0] * len(shape), 2 if layout == "stepped" else 1
    for axis in reversed(axes):
        strides[axis] = step
        step *= shape[axis]
    if layout == "expanded":
        strides[0] = 0
    return tuple(strides)


class Layout:
    """Offsets of a problem's operands; the same for every set, so addresses repeat and values do not."""

    def __init__(self, problem: Problem, arrangement: Arrangement = "contiguous") -> None:
        """`transposed` (last two axes), `stepped` (every second element) and `expanded` (stride 0 along the
        first axis) apply to `in` operands whose values may change; `misaligned` puts each one element behind
        a page."""
        self.slots: list[Slot] = []
        self.scalars = dict(problem.workload.scalars)
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
        self.written = [slot for slot in self.slots if slot.operand.role != "in"]
        self.input_bytes = sum(slot.size for slot in self.slots if slot.operand.role != "out")
        self.kept_bytes = _aligned(max(slot.offset + slot.size for slot in self.written))
        """Bytes of each set that a snapshot copies, from its beginning: outputs come first."""

    def guards(self) -> list[tuple[str, int, int, int]]:
        """(operand beside it, start, end, byte) of everything in a set that is no operand. No two have the
        same byte: else a copy beyond the ends of both its operands would not show."""
        bands, cursor = [], 0
        for number, slot in enumerate(self.slots):
            bands.append((slot.operand.name, cursor, slot.offset, _GUARD_BYTE - number))
            cursor = slot.offset + slot.size
        return [*bands, (slot.operand.name, cursor, self.set_bytes, _GUARD_BYTE - len(bands))]

    def describe(self) -> list[dict[str, object]]:
        """What a worker is told: names, dtypes, shapes, offsets; no values."""
        found: list[dict[str, object]] = []
        for s in self.slots:
            dtype = str(s.dtype).removeprefix("torch.")
            one = {"name": s.operand.name, "role": s.operand.role, "dtype": dtype, "shape": list(s.shape)}
            strides = {} if s.strides is None else {"strides": list(s.strides)}
            keyword = {"keyword": True} if s.operand.keyword else {}
            found.append({**one, "offset": s.offset, **strides, **keyword})
        return found


_T = TypeVar("_T")
_R = TypeVar("_R")
Snapshot = list[torch.Tensor]
"""Of each set: (kept_bytes,) uint8."""


class Each(Protocol):
    """What a function returns for each item."""

    def __call__(self, act: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]: ...


def in_turn(act: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    return list(map(act, items))


@dataclass(frozen=True)
class SetResult:
    outputs: tuple[torch.Tensor, ...]
    changed_inputs: tuple[str, ...]
    changed_guards: tuple[str, ...]


class Arena:
    """One allocation with K filled sets; a context manager that releases it."""

    def __init__(
        self,
        layout: Layout,
        sets: Sequence[Tensors],
        poison: int,
        transport: Transport | None = None,
        resident: Memory | None = None,
        each: Each = in_turn,
    ) -> None:
        """`sets`: inputs of each set; `poison`: the byte that fills outputs (0xFF is NaN). `resident`: memory
        that stays mapped in the worker, which must be frozen now; `each`: applies a function to every set.
        Raises DeviceError or OSError without memory."""
        self.layout = layout
        self._inputs = list(sets)
        self._each = each
        self._poison = poison
        self._changed: list[tuple[list[str], list[str]]] = []
        self.size = layout.set_bytes * len(sets)
        self.resident = resident is not None
        if layout.large and len(sets) != 1:
            raise HarnessBug("a large problem has one set of operands in memory")
        allocate = HostMemory if transport is None else transport.allocate
        self._wait = None if transport is None else transport.wait
        self._memory = allocate(self.size) if resident is None else resident
        self._bytes = self._memory.data[: self.size]
        self._fill()

    def _fill(self) -> None:
        for index, inputs in enumerate(self._inputs):
            base = index * self.layout.set_bytes
            for _, start, end, byte in self.layout.guards():
                self._bytes[base + start : base + end] = byte
            for slot in self.layout.slots:
                place = self._slice(self._bytes, index, slot)
                if slot.operand.role == "out":
                    place.fill_(self._poison)
                else:
                    place.copy_(slot.pack(inputs[slot.operand.name]))

    def _slice(self, data: torch.Tensor, index: int, slot: Slot) -> torch.Tensor:
        start = index * self.layout.set_bytes + slot.offset
        return data[start : start + slot.size]

    def handle(self) -> Handle:
        return Handle() if self.resident else self._memory.handle()

    @property
    def shared(self) -> torch.Tensor:
        """(sets, set_bytes) uint8: the memory that the worker writes to."""
        return self._memory.shared[: self.size].view(len(self._inputs), self.layout.set_bytes)

    def snapshot(self) -> Snapshot:
        """A private copy of the outputs, complete when this returns. Bytes that may not be written are
        compared in place, right after."""
        sets = list(self.shared)
        copies = self._each(lambda data: data[: self.layout.kept_bytes].clone(), sets)
        if self._wait is not None:
            self._wait()
        self._changed = self._each(lambda index: self._integrity(index, sets[index]), range(len(sets)))
        return copies

    def results(self, snapshot: Snapshot) -> list[SetResult]:
        """Of each set; `snapshot` is what the method of that name returned."""
        return [
            SetResult(
                outputs=tuple(slot.unpack(data[slot.offset :][: slot.size]) for slot in self.layout.written),
                changed_inputs=tuple(changed),
                changed_guards=tuple(dict.fromkeys(guards)),
            )
            for data, (changed, guards) in zip(snapshot, self._changed, strict=True)
        ]

    def _integrity(self, index: int, data: torch.Tensor) -> tuple[list[str], list[str]]:
        """(operands, guard bands) in the set `data` that were written and may not be."""
        changed = []
        for slot in self.layout.slots:
            found = data[slot.offset : slot.offset + slot.size]
            if slot.operand.role == "in":
                if not _same_bytes(found, slot.pack(self._inputs[index][slot.operand.name])):
                    changed.append(slot.operand.name)
            elif slot.operand.mask is not None and self._wrote_unmasked(index, slot, found):
                changed.append(f"{slot.operand.name} where {slot.operand.mask} is false")
        return changed, [n for n, a, b, byte in self.layout.guards() if bool((data[a:b] != byte).any())]

    def _wrote_unmasked(self, index: int, slot: Slot, data: torch.Tensor) -> bool:
        inputs = self._inputs[index]
        before = inputs[slot.operand.name].reshape(-1).view(torch.uint8)
        changed = (data != before).reshape(-1, slot.dtype.itemsize).any(dim=1)
        return bool((changed & ~inputs[str(slot.operand.mask)].reshape(-1)).any())

    def close(self) -> None:
        del self._bytes
        if not self.resident:
            self._memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _same_bytes(one: torch.Tensor, two: torch.Tensor) -> bool:
    """In pieces, since a comparison of large operands makes a large copy; 8 bytes at a time if that fits."""
    if all(data.numel() % 8 == data.storage_offset() % 8 == 0 for data in (one, two)):
        one, two = one.view(torch.int64), two.view(torch.int64)
    pieces = (slice(start, start + _PIECE) for start in range(0, one.numel(), _PIECE))
    return all(torch.equal(one[piece], two[piece]) for piece in pieces)
