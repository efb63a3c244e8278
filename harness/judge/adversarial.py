"""Adversarial values: a task's own inputs, made hard.

Only floating-point `in` operands that the task does not `keep` are changed, and none that held NaN or
infinities before (a mask). Every draw comes from a SecretGenerator.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from harness.judge.compare import row_rms
from harness.judge.keystream import SecretGenerator, derived
from harness.judge.problem import Outputs, Problem, Tensors
from harness.records import Operand

OWN = "task"
INTEGERS = "integers"
"""The exact lane: every element is -1, 0 or 1."""
_OFFSET_RMS = 32.0
_OUTLIER = 1e3
_TIES = 8
_REPLACED_SHARE = 0.1


def _factors(dtype: torch.dtype) -> tuple[float, float]:
    """Factors of `tiny` and `large` inputs, smaller where a product of two operands would leave the range."""
    if dtype.itemsize == 1:
        return 2.0**-2, 4.0
    return (2.0**-6, 16.0) if dtype == torch.float16 else (1e-4, 1e3)


def changes(problem: Problem) -> list[Operand]:
    keep = problem.task.keep
    read = [o for o in problem.task.operands if o.role == "in" and o.name not in keep]
    return [o for o in read if problem.operand_dtype(o).is_floating_point]


def make(problem: Problem, kind: str, key: bytes | None = None) -> Tensors:
    """Inputs of `problem` from a key (default: a fresh secret one), made hard by `kind`. Raises HarnessBug as
    Problem.make_inputs does."""
    inputs = dict(problem.make_inputs(key))
    if kind == OWN:
        return inputs
    generator = SecretGenerator(key and derived(key, kind), problem.device, problem.kernels)
    for operand in changes(problem):
        before = inputs[operand.name]
        wide = before.to(torch.float32 if before.dtype != torch.float64 else torch.float64)
        if before.numel() and bool(wide.isfinite().all()):
            made = _KINDS[kind](wide, generator, before.dtype)
            if kind not in ("nan", "inf", "denormal"):
                made = _within(made, before.dtype)
            inputs[operand.name] = made.to(before.dtype).contiguous()
    return inputs


def _within(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Neither beyond the largest number of `dtype` nor below its smallest normal one (then 0)."""
    info = torch.finfo(dtype)
    clamped = values.clamp(info.min, info.max)
    # Times 0 rather than 0: the sign of a zero stays.
    return torch.where(clamped.abs() < info.smallest_normal, clamped * 0.0, clamped)


_Function = Callable[[torch.Tensor, SecretGenerator, torch.dtype], torch.Tensor]
"""(values, generator, dtype of the operand) -> values; float32 or wider in and out, same shape."""


def _place_per_row(values: torch.Tensor, generator: SecretGenerator) -> torch.Tensor:
    return generator.integers((*values.shape[:-1], 1), 0, values.shape[-1])


def _outlier(values: torch.Tensor, generator: SecretGenerator, dtype: torch.dtype) -> torch.Tensor:
    factor = min(_OUTLIER, _factors(dtype)[1])
    if values.dim() == 0:
        return values * factor
    chosen = torch.zeros_like(values, dtype=torch.bool).scatter_(-1, _place_per_row(values, generator), True)
    return torch.where(chosen, values * factor, values)


def _constant(values: torch.Tensor, generator: SecretGenerator, dtype: torch.dtype) -> torch.Tensor:
    if values.dim() == 0:
        return values
    return values.gather(-1, _place_per_row(values, generator)).expand_as(values)


def _ties(values: torch.Tensor, generator: SecretGenerator, dtype: torch.dtype) -> torch.Tensor:
    if values.dim() == 0:
        return values
    count = values.shape[-1]
    pool = max(2, min(_TIES, count // 2))
    return values[..., torch.arange(count, device=values.device) % pool]


def _ordered(values: torch.Tensor, *, descending: bool) -> torch.Tensor:
    return values.sort(dim=-1, descending=descending).values if values.dim() else values


def _replaced(values: torch.Tensor, generator: SecretGenerator, by: torch.Tensor | float) -> torch.Tensor:
    chosen = generator.uniform(values.shape) < _REPLACED_SHARE
    return torch.where(chosen, torch.as_tensor(by).to(values), values)


def _poked(values: torch.Tensor, generator: SecretGenerator, *numbers: float) -> torch.Tensor:
    made = values.clone().reshape(-1)
    for number in numbers:
        made[int(generator.integers((1,), 0, values.numel()))] = number
    return made.reshape(values.shape)


_KINDS: dict[str, _Function] = {
    "normal": lambda values, generator, dtype: generator.normal(values.shape).to(values),
    "tiny": lambda values, generator, dtype: values * _factors(dtype)[0],
    "large": lambda values, generator, dtype: values * _factors(dtype)[1],
    "offset": lambda values, generator, dtype: values + _OFFSET_RMS * row_rms(values),
    "outlier": _outlier,
    "constant": _constant,
    "sorted": lambda values, generator, dtype: _ordered(values, descending=False),
    "reversed": lambda values, generator, dtype: _ordered(values, descending=True),
    "ties": _ties,
    "nan": lambda values, generator, dtype: _poked(values, generator, torch.nan),
    "inf": lambda values, generator, dtype: _poked(values, generator, torch.inf, -torch.inf),
    "denormal": lambda values, generator, dtype: _replaced(
        values, generator, values.sign() * (torch.finfo(dtype).smallest_normal / 2)
    ),
    "negative_zero": lambda values, generator, dtype: _replaced(values, generator, -0.0),
    INTEGERS: lambda values, generator, dtype: generator.integers(values.shape, -1, 2).to(values),
}


def fit_layout(problem: Problem, inputs: Tensors, layout: str) -> Tensors:
    """Values that can lie in `layout`: an expanded operand holds the same along its first axis."""
    if layout != "expanded":
        return inputs
    every = {o.name: inputs[o.name] for o in changes(problem) if inputs[o.name].dim()}
    return {**inputs, **{name: x[:1].expand_as(x).contiguous() for name, x in every.items()}}


def unfit(problem: Problem, truths: Outputs) -> str | None:
    """Why adversarial values cannot be judged: the truth is not finite, or beyond the output's dtype."""
    for operand, truth in zip(problem.task.outputs, truths, strict=True):
        dtype = problem.operand_dtype(operand)
        if not dtype.is_floating_point or not truth.numel():
            continue
        largest = float(truth.abs().max())
        if not largest <= torch.finfo(dtype).max:  # NaN too
            name = str(dtype).removeprefix("torch.")
            return f"{operand.name} would reach {largest:.3g}, which {name} cannot hold"
    return None
