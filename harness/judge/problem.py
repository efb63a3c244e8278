"""One workload made concrete: shapes, dtypes, fresh inputs, the truth, and the reference's own answer.

Owns: calling a task's reference.py on the judge's side. Does not own: buffers, comparison, verdict.
Invariant: truth is computed in float64 from the same quantised inputs that the project received.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from harness.catalogue import LoadedTask
from harness.errors import HarnessBug
from harness.expressions import evaluate
from harness.judge.keystream import SecretGenerator
from harness.prompts import operand_dtype
from harness.records import Operand, Task, Workload

Tensors = dict[str, torch.Tensor]


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of that name. Raises HarnessBug for a name that is none."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise HarnessBug(f"{name!r} is no torch dtype")
    return dtype


@dataclass(frozen=True)
class WorkloadView:
    """What `make_inputs` of a task sees."""

    name: str
    dims: Mapping[str, int]
    scalars: Mapping[str, float | int | bool]
    dtype: torch.dtype


class Problem:
    """A task's workload with a dtype, and the functions of its reference.py."""

    def __init__(self, loaded: LoadedTask, workload: Workload, dtype: str) -> None:
        self.task: Task = loaded.task
        self.workload = workload
        self.dtype = dtype
        self._module: ModuleType = loaded.reference_module()

    @property
    def label(self) -> str:
        """For messages: `name float32`."""
        return f"{self.workload.name} {self.dtype}"

    def shape(self, operand: Operand) -> tuple[int, ...]:
        """The operand's shape."""
        return tuple(evaluate(axis, self.workload.dims) for axis in operand.shape)

    def operand_dtype(self, operand: Operand) -> torch.dtype:
        """The operand's dtype."""
        return torch_dtype(operand_dtype(operand, self.dtype))

    def make_inputs(self) -> Tensors:
        """All operands but the `out` ones, by name, contiguous, from a fresh secret key."""
        view = WorkloadView(
            self.workload.name, self.workload.dims, self.workload.scalars, torch_dtype(self.dtype)
        )
        inputs: Tensors = self._module.make_inputs(view, SecretGenerator())
        for operand in self.task.operands:
            if operand.role == "out":
                continue
            value = inputs.get(operand.name)
            expected = (self.shape(operand), self.operand_dtype(operand))
            if value is None or (tuple(value.shape), value.dtype) != expected:
                raise HarnessBug(f"{self.task.id}: make_inputs gave no {operand.name} of {expected}")
            inputs[operand.name] = value.contiguous()
        return inputs

    def _arguments(self, inputs: Tensors, dtype: torch.dtype | None) -> dict[str, Any]:
        cast = {
            n: v.to(dtype) if dtype is not None and v.is_floating_point() else v.clone()
            for n, v in inputs.items()
        }
        return {**cast, **self.workload.scalars}

    def truth(self, inputs: Tensors) -> tuple[torch.Tensor, ...]:
        """Outputs in float64 (integers stay integers), in the order of Task.outputs."""
        function = getattr(self._module, "truth", self._module.reference)
        return self._checked(function(self._arguments(inputs, torch.float64)))

    def reference(self, inputs: Tensors) -> tuple[torch.Tensor, ...]:
        """Outputs of PyTorch in the workload's dtype, in the order of Task.outputs."""
        return self._checked(self._module.reference(self._arguments(inputs, None)))

    def _checked(self, outputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        expected = [self.shape(o) for o in self.task.outputs]
        if not isinstance(outputs, tuple) or [tuple(o.shape) for o in outputs] != expected:
            raise HarnessBug(f"{self.task.id}: the reference did not return outputs of shapes {expected}")
        return outputs

    @property
    def custom_compare(self) -> Any:
        """The task's own `compare(outputs, truths, inputs) -> error / tolerance`, or None."""
        return getattr(self._module, "compare", None)

    @property
    def has_library(self) -> bool:
        """Whether reference.py names a fused library op to beat."""
        return hasattr(self._module, "library")

    @property
    def bytes_moved(self) -> int:
        """Unique bytes of all operands; `inout` and `partial` ones are read and written."""
        total = 0
        for operand in self.task.operands:
            count = 1
            for axis in self.shape(operand):
                count *= axis
            times = 2 if operand.role in ("inout", "partial") else 1
            total += times * count * self.operand_dtype(operand).itemsize
        return total

    @property
    def flops(self) -> int | None:
        """Operations of the workload, where the task counts them."""
        return None if self.task.flops is None else evaluate(self.task.flops, self.workload.dims)
