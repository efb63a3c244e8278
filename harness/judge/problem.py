"""One workload made concrete: shapes, dtypes, fresh inputs, the truth, and the reference's own answer.

Truth is computed in float64 from the quantized inputs that the project received. Where a trial proves that an
op treats rows (indices of the first axis) apart, the truth of some rows can be computed alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple

import torch

from harness.errors import HarnessBug
from harness.expressions import evaluate
from harness.judge.device_kernels import DeviceKernels
from harness.judge.keystream import SecretGenerator
from harness.records import Operand, Task, Workload
from harness.records.task import operand_dtype
from harness.suite.catalogue import LoadedTask
from harness.suite.sizes import size_of, whole_limit

Tensors = dict[str, torch.Tensor]
Outputs = tuple[torch.Tensor, ...]
DEVICE_ERRORS = (torch.OutOfMemoryError, torch.AcceleratorError)
ROWS, DRAWS = 4, 3
"""Rows and draws of a proof that rows are treated apart."""
_CLOSE = 1e-9
"""Of float64 results that are sums in another order; what depends on other rows differs by far more."""
_secret = random.SystemRandom()


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of that name. Raises HarnessBug for any other name."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise HarnessBug(f"{name!r} is no torch dtype")
    return dtype


@contextmanager
def _strict_arithmetic() -> Iterator[None]:
    """No TF32 (cuDNN's convolutions use it by default) and no 16-bit sums."""
    switches: tuple[tuple[Any, str], ...] = (
        (torch.backends.cuda.matmul, "allow_tf32"),
        (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
        (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
        (torch.backends.cudnn, "allow_tf32"),
    )
    with ExitStack() as restore:
        for holder, name in switches:
            restore.callback(setattr, holder, name, getattr(holder, name))
            setattr(holder, name, False)
        yield


class WorkloadView(NamedTuple):
    name: str
    dims: Mapping[str, int]
    scalars: Mapping[str, float | int | bool]
    dtype: torch.dtype


class Problem:
    def __init__(
        self,
        loaded: LoadedTask,
        workload: Workload,
        dtype: str,
        *,
        device: torch.device | None = None,
        kernels: DeviceKernels | None = None,
        hidden: bool = False,
        whole_bytes: int | None = None,
    ) -> None:
        """`device`: where inputs and truth are (default: the CPU); `kernels`: those that draw inputs there
        (default: the host draws them); `hidden`: the shape is in no task file; `whole_bytes`: maximum size
        that is judged whole (default: the device's limit)."""
        self.task: Task = loaded.task
        self.workload = workload
        self.dtype = dtype
        self.device = torch.device("cpu") if device is None else device
        self.kernels = kernels
        self.hidden = hidden
        self._loaded = loaded
        self._whole_bytes = whole_bytes

    @cached_property
    def large(self) -> bool:
        """Whether it is judged in parts: only outputs are copied, and compared part by part."""
        if self.task.parts is None:
            return False
        limit = self._whole_bytes
        if limit is None:
            far = self.device.type == "cuda"
            memory = torch.cuda.get_device_properties(self.device).total_memory if far else None
            limit = whole_limit("cuda" if far else "cpu", memory)
        return size_of(self.task, self.workload, self.dtype).judged_bytes > limit

    @cached_property
    def rows_apart(self) -> bool:
        """Whether rows of the outputs depend on the same rows of the inputs alone, as the task declares and a
        trial confirms; otherwise the truth is computed whole."""

        def draw(rows: int) -> Tensors:
            generator = SecretGenerator(device=self.device, kernels=self.kernels)
            drawn: Tensors = self._module.draw(generator, torch_dtype(self.dtype), rows)
            return drawn

        rows = () if self.task.parts is None else self.task.parts.rows
        return bool(rows) and treats_rows_apart(draw, self.truth_of, rows)

    def rows_of(self, inputs: Tensors, rows: torch.Tensor) -> Tensors:
        assert self.task.parts is not None
        return take_rows(inputs, self.task.parts.rows, rows)

    @cached_property
    def _module(self) -> ModuleType:
        return self._loaded.reference_module()

    @property
    def label(self) -> str:
        return f"{self.workload.name} {self.dtype}"

    def shape(self, operand: Operand) -> tuple[int, ...]:
        return tuple(evaluate(axis, self.workload.dims) for axis in operand.shape)

    def operand_dtype(self, operand: Operand) -> torch.dtype:
        return torch_dtype(operand_dtype(operand, self.dtype))

    def published_inputs(self) -> Tensors:
        """Inputs as the original benchmark draws them, for its own rules; by default the task's."""
        return self._drawn(getattr(self._module, "published_inputs", self._module.make_inputs))

    def make_inputs(self, key: bytes | None = None) -> Tensors:
        """All operands but the `out` ones, by name, contiguous, from a key (default: a fresh secret one)."""
        return self._drawn(self._module.make_inputs, key)

    def _drawn(self, make: Callable[..., Tensors], key: bytes | None = None) -> Tensors:
        one = self.workload
        view = WorkloadView(one.name, one.dims, one.scalars, torch_dtype(self.dtype))
        inputs = make(view, SecretGenerator(key, device=self.device, kernels=self.kernels))
        for operand in (o for o in self.task.operands if o.role != "out"):
            value = inputs.get(operand.name)
            expected = (self.shape(operand), self.operand_dtype(operand))
            if value is None or (tuple(value.shape), value.dtype) != expected:
                raise HarnessBug(f"{self.task.id}: make_inputs gave no {operand.name} of {expected}")
            inputs[operand.name] = value.contiguous().to(self.device)
        return inputs

    def _arguments(self, inputs: Tensors, dtype: torch.dtype | None) -> dict[str, Any]:
        def cast(value: torch.Tensor) -> torch.Tensor:
            return value.to(dtype) if dtype is not None and value.is_floating_point() else value.clone()

        return {**{name: cast(value) for name, value in inputs.items()}, **self.workload.scalars}

    def truth(self, inputs: Tensors) -> Outputs:
        """Outputs in float64 (integers stay integers), in the order of Task.outputs."""
        return self._checked(self.truth_of(inputs))

    def truth_of(self, inputs: Tensors) -> Outputs:
        function = getattr(self._module, "truth", self._module.reference)
        outputs: Outputs = function(self._arguments(inputs, torch.float64))
        return outputs

    def reference(self, inputs: Tensors) -> Outputs:
        """Outputs of PyTorch in the workload's dtype, in the order of Task.outputs; TF32 is off."""
        return self._checked(self.reference_of(inputs))

    def reference_of(self, inputs: Tensors) -> Outputs:
        with _strict_arithmetic():
            outputs: Outputs = self._module.reference(self._arguments(inputs, None))
        return outputs

    def scales(self, inputs: Tensors) -> tuple[torch.Tensor | None, ...]:
        """s_ij of every output, float64, where the task has a `scale` function, else None: the row's RMS."""
        function = getattr(self._module, "scale", None)
        if function is None:
            return (None,) * len(self.task.outputs)
        return self._checked(function(self._arguments(inputs, torch.float64)), "scale()")

    def _checked(self, outputs: Outputs, who: str = "the reference") -> Outputs:
        expected = [self.shape(o) for o in self.task.outputs]
        if not isinstance(outputs, tuple) or [tuple(o.shape) for o in outputs] != expected:
            raise HarnessBug(f"{self.task.id}: {who} did not return outputs of shapes {expected}")
        return outputs

    @property
    def custom_compare(self) -> Any:
        return getattr(self._module, "compare", None)

    @property
    def has_library(self) -> bool:
        """Whether reference.py names a fused library op to beat."""
        return hasattr(self._module, "library")

    @property
    def size_bytes(self) -> int:
        return sum(math.prod(self.shape(o)) * self.operand_dtype(o).itemsize for o in self.task.operands)

    @property
    def bytes_moved(self) -> int:
        """Unique bytes that a call touches; `inout` and `partial` operands are read and written."""
        total = 0
        for operand in self.task.operands:
            count = math.prod(self.shape(operand))
            if operand.touched is not None:
                count = min(count, evaluate(operand.touched, self.workload.dims))
            times = 2 if operand.role in ("inout", "partial") else 1
            total += times * count * self.operand_dtype(operand).itemsize
        return total

    @property
    def flops(self) -> int | None:
        return None if self.task.flops is None else evaluate(self.task.flops, self.workload.dims)


def take_rows(inputs: Tensors, names: Sequence[str], rows: torch.Tensor) -> Tensors:
    return {
        name: value.index_select(0, rows.to(value.device)) if name in names else value
        for name, value in inputs.items()
    }


def treats_rows_apart(
    draw: Callable[[int], Tensors],
    truth: Callable[[Tensors], Outputs],
    names: Sequence[str],
    rows: int = ROWS,
    draws: int = DRAWS,
) -> bool:
    """Whether a few rows in reverse (the place of a row must not matter), and a random part of them (nor
    other rows or their number), give just those rows of the float64 outputs. `draw(n)`: inputs with n rows in
    `names`."""
    for _ in range(draws):
        inputs = draw(rows)
        whole = truth(inputs)
        if any(not out.dim() or out.shape[0] != rows for out in whole):
            return False
        some = _secret.sample(range(rows), _secret.randint(1, max(1, rows - 1)))
        for chosen in (torch.arange(rows).flip(0), torch.tensor(some)):
            try:
                part = truth(take_rows(inputs, names, chosen))
            except DEVICE_ERRORS:
                raise
            except (IndexError, RuntimeError, ValueError):
                return False  # it does not take every number of rows
            if not all(_equal(p, w[chosen.to(w.device)]) for p, w in zip(part, whole, strict=True)):
                return False
    return True


def _equal(part: torch.Tensor, whole: torch.Tensor) -> bool:
    if part.shape != whole.shape:
        return False
    if not whole.is_floating_point():
        return torch.equal(part, whole)
    scale = float(whole.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().max()) if whole.numel() else 0.0
    return torch.allclose(part, whole, rtol=_CLOSE, atol=_CLOSE * scale, equal_nan=True)
