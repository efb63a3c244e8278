"""Adversarial values: a task's own inputs, made hard.

Only floating `in` operands that the task does not `keep` are changed; nothing is made that is subnormal,
infinite or no number, but by the kinds that say so; what was infinite or no number before (a mask) leaves
its operand alone.

Every draw comes from a SecretGenerator, so a student can no more predict these than the task's own values.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from harness.judge.keystream import SecretGenerator
from harness.judge.problem import Problem, Tensors
from harness.records import Operand

OWN = "task"
"""The mixture that `make_inputs` draws."""
INTEGERS = "integers"
"""The exact lane: every element is -1, 0 or 1."""
_OFFSET_RMS = 32.0
_OUTLIER = 1e3
_TIES = 8
# 1e-4 and 1e3 (protocols.md) leave the range of 16-bit floats and less once an op multiplies two operands.
_NARROW = {torch.float16: (2.0**-6, 16.0)}
_DEFAULT = (1e-4, 1e3)
_FLOAT8 = (2.0**-2, 4.0)


def _scales(dtype: torch.dtype) -> tuple[float, float]:
    """Factors of `tiny` and `large`."""
    return _FLOAT8 if dtype.itemsize == 1 else _NARROW.get(dtype, _DEFAULT)


def changes(problem: Problem) -> list[Operand]:
    """Operands whose values may be made adversarial."""
    return [
        o
        for o in problem.task.operands
        if o.role == "in" and o.name not in problem.task.keep and problem.operand_dtype(o).is_floating_point
    ]


def make(problem: Problem, kind: str) -> Tensors:
    """Fresh inputs of `problem`, made hard by `kind`. Raises HarnessBug as Problem.make_inputs does."""
    inputs = dict(problem.make_inputs())
    if kind == OWN:
        return inputs
    function, generator = _KINDS[kind], SecretGenerator()
    for operand in changes(problem):
        before = inputs[operand.name]
        wide = before.to(torch.float32 if before.dtype != torch.float64 else torch.float64)
        if before.numel() and bool(wide.isfinite().all()):
            made = function(wide, generator, before.dtype)
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


def _row_rms(values: torch.Tensor) -> torch.Tensor:
    return values.square().mean(dim=-1, keepdim=True).sqrt() if values.dim() else values.abs()


def _drawn(values: torch.Tensor, generator: SecretGenerator) -> torch.Tensor:
    return generator.normal(values.shape).to(values)


def _one_per_row(values: torch.Tensor, generator: SecretGenerator) -> torch.Tensor:
    """(like values) bool: one element of each row, at a secret place."""
    if values.dim() == 0:
        return torch.ones_like(values, dtype=torch.bool)
    place = generator.integers((*values.shape[:-1], 1), 0, values.shape[-1]).to(values.device)
    return torch.zeros_like(values, dtype=torch.bool).scatter_(-1, place, True)


def _one(values: torch.Tensor, generator: SecretGenerator) -> int:
    return int(generator.integers((1,), 0, values.numel()))


def _outlier(values: torch.Tensor, generator: SecretGenerator, dtype: torch.dtype) -> torch.Tensor:
    factor = min(_OUTLIER, _scales(dtype)[1])
    return torch.where(_one_per_row(values, generator), values * factor, values)


def _constant(values: torch.Tensor, generator: SecretGenerator, dtype: torch.dtype) -> torch.Tensor:
    """Every row is one of its elements."""
    del dtype
    if values.dim() == 0:
        return values
    place = generator.integers((*values.shape[:-1], 1), 0, values.shape[-1]).to(values.device)
    return values.gather(-1, place).expand_as(values)


def _ties(values: torch.Tensor, generator: SecretGenerator, dtype: torch.dtype) -> torch.Tensor:
    """Every row repeats its first few elements; two of them at least, so that it does not become constant."""
    del generator, dtype
    if values.dim() == 0:
        return values
    count = values.shape[-1]
    pool = max(2, min(_TIES, count // 2))
    return values[..., torch.arange(count, device=values.device) % pool]


def _ordered(descending: bool) -> _Function:
    def ordered(values: torch.Tensor, generator: SecretGenerator, dtype: torch.dtype) -> torch.Tensor:
        del generator, dtype
        return values.sort(dim=-1, descending=descending).values if values.dim() else values

    return ordered


def _some(value: Callable[[torch.Tensor, torch.dtype], torch.Tensor | float]) -> _Function:
    """A tenth of the elements are replaced."""

    def replace(values: torch.Tensor, generator: SecretGenerator, dtype: torch.dtype) -> torch.Tensor:
        chosen = generator.uniform(values.shape).to(values.device) < 0.1
        return torch.where(chosen, torch.as_tensor(value(values, dtype)).to(values), values)

    return replace


def _nan(values: torch.Tensor, generator: SecretGenerator, dtype: torch.dtype) -> torch.Tensor:
    del dtype
    made = values.clone().reshape(-1)
    made[_one(values, generator)] = torch.nan
    return made.reshape(values.shape)


def _inf(values: torch.Tensor, generator: SecretGenerator, dtype: torch.dtype) -> torch.Tensor:
    del dtype
    made = values.clone().reshape(-1)
    made[_one(values, generator)] = torch.inf
    made[_one(values, generator)] = -torch.inf
    return made.reshape(values.shape)


_Function = Callable[[torch.Tensor, SecretGenerator, torch.dtype], torch.Tensor]
"""(values, generator, dtype of the operand) -> values; float32 or wider in and out, same shape."""

_KINDS: dict[str, _Function] = {
    "normal": lambda values, generator, dtype: _drawn(values, generator),
    "tiny": lambda values, generator, dtype: values * _scales(dtype)[0],
    "large": lambda values, generator, dtype: values * _scales(dtype)[1],
    "offset": lambda values, generator, dtype: values + _OFFSET_RMS * _row_rms(values),
    "outlier": _outlier,
    "constant": _constant,
    "sorted": _ordered(descending=False),
    "reversed": _ordered(descending=True),
    "ties": _ties,
    "nan": _nan,
    "inf": _inf,
    "denormal": _some(lambda values, dtype: values.sign() * (torch.finfo(dtype).smallest_normal / 2)),
    "negative_zero": _some(lambda values, dtype: -0.0),
    INTEGERS: lambda values, generator, dtype: generator.integers(values.shape, -1, 2).to(values),
}


def fit_layout(problem: Problem, inputs: Tensors, layout: str) -> Tensors:
    """Values that can lie in `layout`: an expanded operand holds the same along its first axis."""
    if layout != "expanded":
        return inputs
    same = {
        o.name: inputs[o.name][:1].expand_as(inputs[o.name]).contiguous()
        for o in changes(problem)
        if inputs[o.name].dim()
    }
    return {**inputs, **same}


def unfit(problem: Problem, truths: tuple[torch.Tensor, ...]) -> str | None:
    """Why values cannot be judged: the truth is no finite number, or none that the output's dtype holds.

    Asked for adversarial values alone, and never for those that a task promises to contain NaN or infinities.
    """
    for operand, truth in zip(problem.task.outputs, truths, strict=True):
        dtype = problem.operand_dtype(operand)
        if not dtype.is_floating_point or not truth.numel():
            continue
        largest = float(truth.abs().max())
        if not largest <= torch.finfo(dtype).max:  # NaN too
            name = str(dtype).removeprefix("torch.")
            return f"{operand.name} would reach {largest:.3g}, which {name} cannot hold"
    return None
