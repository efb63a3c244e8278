"""How much memory judging a workload takes, and a refusal before anything starts.

Owns: the estimate and the limits. Does not own: memory (judge/memory.py), shapes (records/task.py).
Invariant: pure arithmetic over task files: no torch, no allocation.

One call on a workload has alive at once: its inputs as they were drawn, the arena that the worker maps, the
judge's snapshot of it, and the float64 truth with its float64 inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.catalogue import LoadedTask
from harness.errors import UsageError
from harness.expressions import evaluate
from harness.prompts import operand_dtype
from harness.records import Target, Task, Workload

HOST_BYTES = 2 << 30
DEVICE_SHARE = 4
"""Live buffers stay below 2 GiB on the CPU, and below a quarter of a device's memory (DESIGN)."""
_COPIES = 3
_TRUTH_BYTES = 8
_WIDTHS = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}


def element_bytes(dtype: str) -> int:
    """Of a torch dtype by name; 1 for all that have 8 bits."""
    return _WIDTHS.get(dtype, 1)


@dataclass(frozen=True)
class Size:
    """Of one workload in one dtype."""

    workload: str
    dtype: str
    operands_bytes: int
    judged_bytes: int
    """At once, while a call on it is judged."""

    @property
    def label(self) -> str:
        """`name dtype`."""
        return f"{self.workload} {self.dtype}"


def size_of(task: Task, workload: Workload, dtype: str) -> Size:
    """The size of a workload. Raises ValueError for a broken expression, which load_task has ruled out."""
    operands = elements = 0
    for operand in task.operands:
        count = math.prod(evaluate(axis, workload.dims) for axis in operand.shape)
        operands += count * element_bytes(operand_dtype(operand, dtype))
        elements += count
    return Size(workload.name, dtype, operands, _COPIES * operands + _TRUTH_BYTES * elements)


def sizes(task: Task, target: Target) -> list[Size]:
    """Of all workloads in all dtypes of the target."""
    return [
        size_of(task, workload, dtype)
        for workload in task.workloads_for(target)
        for dtype in task.dtypes.get(target, ())
    ]


def refuse_too_large(tasks: Sequence[LoadedTask], target: Target, device_bytes: int | None) -> None:
    """Raises UsageError that names every workload too large to be judged here.

    `device_bytes`: memory of the GPU that projects run on; None where there is none: then nothing of `cuda`
    runs, and nothing is refused.
    """
    if target == "cuda" and device_bytes is None:
        return
    limit = HOST_BYTES if target == "cpu" or device_bytes is None else device_bytes // DEVICE_SHARE
    where = "the cpu target" if target == "cpu" else "a quarter of this GPU's memory"
    found = [
        f"{loaded.task.id} {size.label}: {gib(size.judged_bytes)}"
        for loaded in tasks
        for size in sizes(loaded.task, target)
        if size.judged_bytes > limit
    ]
    if found:
        raise UsageError(
            f"too large to be judged here ({where} allows {gib(limit)}): {'; '.join(found)}. "
            "Leave these tasks out with --tasks, or use a larger machine"
        )


def gib(size_bytes: int) -> str:
    """`1.5 GiB`, or `20 MiB` below half of one."""
    return f"{size_bytes / 2**30:.2g} GiB" if size_bytes >= 1 << 29 else f"{size_bytes / 2**20:.3g} MiB"
