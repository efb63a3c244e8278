"""Computes the memory for judging a workload, and refuses workloads that are too large.

Judged whole, a call keeps alive its drawn inputs, the arena that the worker maps, the judge's copy of it, and
the float64 truth with its float64 inputs. For judging in parts (`Task.parts`) see `parts_bytes`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.expressions import evaluate
from harness.records import Operand, Target, Task, Workload
from harness.records.task import operand_dtype
from harness.suite.catalogue import LoadedTask

HOST_BYTES = 2 << 30
DEVICE_SHARE = 4
"""Judging whole takes at most 2 GiB on the CPU, or a quarter of a device's memory."""
PARTS_SHARE = 0.9
"""Share of a device's memory for judging in parts (our choice)."""
PART_BYTES = 1 << 30
"""Memory of one part of the truth with its comparison, unless one row takes more (our choice)."""
_CONTEXT_BYTES = 2 << 30
"""CUDA contexts of two processes (our choice)."""
_COPIES = 3
_TRUTH_BYTES = 8
_COMPARED_BYTES = 40
"""Per output element during comparison: five float64 values."""
# Bytes per element; all other types have 8 bits.
_WIDTHS = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}


def whole_limit(target: Target, device_bytes: int | None) -> int:
    """Memory limit for judging a workload whole."""
    return HOST_BYTES if target == "cpu" or device_bytes is None else device_bytes // DEVICE_SHARE


@dataclass(frozen=True)
class Size:
    """The sizes of one workload in one dtype."""

    workload: str
    dtype: str
    operands_bytes: int
    judged_bytes: int
    parts_bytes: int | None = None
    """Peak in judge and worker while it is judged in parts; None if it cannot be."""

    @property
    def label(self) -> str:
        """`name dtype`."""
        return f"{self.workload} {self.dtype}"

    def needed(self, target: Target, device_bytes: int | None) -> tuple[int, int]:
        """(needed bytes, limit); in parts if it is too large to be judged whole, which only a device does."""
        limit = whole_limit(target, device_bytes)
        if self.judged_bytes <= limit or self.parts_bytes is None or target == "cpu" or device_bytes is None:
            return self.judged_bytes, limit
        return self.parts_bytes, int(device_bytes * PARTS_SHARE)


def _bytes(operand: Operand, workload: Workload, dtype: str) -> tuple[int, int]:
    """(elements, bytes)."""
    count = math.prod(evaluate(axis, workload.dims) for axis in operand.shape)
    return count, count * _WIDTHS.get(operand_dtype(operand, dtype), 1)


def row_bytes(task: Task, workload: Workload, dtype: str) -> int:
    """Memory of one row of a workload that is judged by rows: copied, in float64, and compared."""
    assert task.parts is not None and task.parts.rows
    rows = evaluate(task.outputs[0].shape[0], workload.dims)
    batched = sum(_bytes(o, workload, dtype)[1] for o in task.operands if o.name in task.parts.rows)
    elements = sum(_bytes(o, workload, dtype)[0] for o in task.outputs)
    live = evaluate(task.parts.live, workload.dims)
    return -(-(3 * batched + 2 * live + _COMPARED_BYTES * elements) // max(rows, 1))


def parts_bytes(task: Task, workload: Workload, dtype: str) -> int | None:
    """Peak memory of judging a workload in parts, in judge and worker; None if it cannot be.

    Always alive: two sets of inputs (repeated and fresh ones), two sets of outputs, and the worker's own
    memory. Added one after the other: a draw (its largest operand as bits and as values), the arena, and the
    truth of some rows or of all.
    """
    if task.parts is None:
        return None
    sizes = {o.name: _bytes(o, workload, dtype)[1] for o in task.operands}
    out_bytes = sum(sizes[o.name] for o in task.outputs)
    in_bytes = sum(sizes.values()) - out_bytes
    live = evaluate(task.parts.live, workload.dims)
    fixed = live + _CONTEXT_BYTES
    draw = 2 * in_bytes + max(sizes[o.name] for o in task.operands if o.role == "in") + out_bytes
    call = 3 * in_bytes + 3 * out_bytes
    if task.parts.rows:
        shared = in_bytes - sum(sizes[name] for name in task.parts.rows)
        truth = 2 * shared + max(PART_BYTES, row_bytes(task, workload, dtype))
    else:
        truth = 2 * in_bytes + 2 * live + PART_BYTES
    return fixed + max(draw, call, 2 * in_bytes + 2 * out_bytes + truth)


def size_of(task: Task, workload: Workload, dtype: str) -> Size:
    """The size of a workload. Raises ValueError for a broken expression, which load_task refuses."""
    both = [_bytes(operand, workload, dtype) for operand in task.operands]
    elements, operands = sum(count for count, _ in both), sum(size for _, size in both)
    judged = _COPIES * operands + _TRUTH_BYTES * elements
    return Size(workload.name, dtype, operands, judged, parts_bytes(task, workload, dtype))


def sizes(task: Task, target: Target) -> list[Size]:
    """Of all workloads in all dtypes of the target."""
    return [
        size_of(task, workload, dtype)
        for workload in task.workloads_for(target)
        for dtype in task.dtypes.get(target, ())
    ]


def refuse_too_large(tasks: Sequence[LoadedTask], target: Target, device_bytes: int | None) -> None:
    """Raises UsageError with every workload that is too large to be judged here.

    `device_bytes`: memory of the GPU; without one (None) nothing of `cuda` runs, so nothing is refused.
    """
    if target == "cuda" and device_bytes is None:
        return
    found = []
    for loaded in tasks:
        for size in sizes(loaded.task, target):
            needed, limit = size.needed(target, device_bytes)
            if needed > limit:
                found.append(f"{loaded.task.id} {size.label}: {gib(needed)} (limit {gib(limit)})")
    if found:
        where = "the cpu target" if target == "cpu" else "this GPU"
        raise UsageError(
            f"too large to be judged on {where}: {'; '.join(found)}. "
            "Leave these tasks out with --tasks, or use a larger machine"
        )


def gib(size_bytes: int) -> str:
    """`1.5 GiB`, or `20 MiB` below half of one."""
    return f"{size_bytes / 2**30:.2g} GiB" if size_bytes >= 1 << 29 else f"{size_bytes / 2**20:.3g} MiB"
