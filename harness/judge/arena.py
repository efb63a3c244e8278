"""Shared memory that the judge owns: one arena holds K sets of a problem's operands.

Owns: the layout, poison, guard bands, and the check of what a worker left behind.
Does not own: when it is handed over (contender.py).
Invariant: an arena is filled before a worker can map it, handed over once, and never reused, so
nothing of a later call's inputs can be seen early. The judge's private copy, not the shared memory,
is what truth is computed from.

Layout of a set: guard | operand | guard | operand | ... | guard, operands aligned to 256 bytes plus
one page, sets aligned to pages.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.judge.problem import Problem, Tensors
from harness.records import Operand

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
    """Bytes."""


def _all_equal(data: torch.Tensor, byte: int) -> bool:
    return bool((data == byte).all())


class Layout:
    """Offsets of a problem's operands; the same for every set, so addresses repeat and values do not."""

    def __init__(self, problem: Problem) -> None:
        self.slots: list[Slot] = []
        cursor = GUARD_BYTES
        for operand in problem.task.operands:
            shape, dtype = problem.shape(operand), problem.operand_dtype(operand)
            size = dtype.itemsize
            for axis in shape:
                size *= axis
            self.slots.append(Slot(operand, shape, dtype, cursor, size))
            cursor = _aligned(cursor + size) + GUARD_BYTES
        self.set_bytes = _aligned(cursor)

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
    """One memfd with K filled sets."""

    def __init__(self, layout: Layout, sets: Sequence[Tensors], poison: int) -> None:
        """`sets`: inputs of each set; `poison`: the byte (0xFF is NaN, or 0x00) that fills outputs."""
        self.layout = layout
        self._inputs = list(sets)
        self._poison = poison
        self.size = layout.set_bytes * len(sets)
        # A random name: the worker sees it in /proc/self/maps, and it says nothing.
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self.descriptor = os.memfd_create(secrets.token_hex(4), flags)
        os.ftruncate(self.descriptor, self.size)
        # Without these seals a worker could shrink the file and kill the judge with SIGBUS.
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
        self._map = mmap.mmap(self.descriptor, self.size)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)
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
                    place.copy_(inputs[slot.operand.name].reshape(-1).view(torch.uint8))

    def _place(self, index: int, slot: Slot) -> torch.Tensor:
        start = index * self.layout.set_bytes + slot.offset
        return self._bytes[start : start + slot.size]

    def snapshot(self) -> torch.Tensor:
        """A private copy of everything, as bytes: afterwards the worker can change nothing."""
        return self._bytes.clone()

    def results(self, snapshot: torch.Tensor) -> list[SetResult]:
        """What each set holds, from a snapshot."""
        return [self._result(index, snapshot) for index in range(len(self._inputs))]

    def _result(self, index: int, snapshot: torch.Tensor) -> SetResult:
        base = index * self.layout.set_bytes
        outputs, changed = [], []
        for slot in self.layout.slots:
            start, end = base + slot.offset, base + slot.offset + slot.size
            data = snapshot[start:end]
            if slot.operand.role == "in":
                before = self._inputs[index][slot.operand.name].reshape(-1).view(torch.uint8)
                if not torch.equal(data, before):
                    changed.append(slot.operand.name)
                continue
            if slot.operand.mask is not None and self._wrote_unmasked(index, slot, data):
                changed.append(f"{slot.operand.name} where {slot.operand.mask} is false")
            outputs.append(data.view(slot.dtype).reshape(slot.shape))
        guards = [
            name
            for name, start, end in self.layout.guards()
            if not _all_equal(snapshot[base + start : base + end], _GUARD_BYTE)
        ]
        return SetResult(tuple(outputs), tuple(changed), tuple(dict.fromkeys(guards)))

    def _wrote_unmasked(self, index: int, slot: Slot, data: torch.Tensor) -> bool:
        """Whether a `partial` operand's bytes changed in an element that its mask leaves out."""
        inputs = self._inputs[index]
        before = inputs[slot.operand.name].reshape(-1).view(torch.uint8)
        changed = (data != before).reshape(-1, slot.dtype.itemsize).any(dim=1)
        return bool((changed & ~inputs[str(slot.operand.mask)].reshape(-1)).any())

    def close(self) -> None:
        """Release the descriptor and the mapping."""
        os.close(self.descriptor)
        del self._bytes
        self._map.close()
