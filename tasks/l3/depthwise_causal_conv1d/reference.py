"""Depthwise causal convolution of width 4, then SiLU, as a PyTorch user writes it.

Shapes: x (batch, dim, length), weight (dim, 4), bias (dim,) -> out like x, all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

WIDTH = 4


def _convolved(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    padded = F.conv1d(x, weight[:, None], bias, padding=WIDTH - 1, groups=x.shape[1])
    return padded[..., : x.shape[-1]]


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    return (F.silu(_convolved(inputs["x"], inputs["weight"], inputs["bias"])),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """(|bias| + |weight| * |x|) / sqrt(5): what rounding errors of the sum grow with."""
    x, weight, bias = (inputs[name].abs() for name in ("x", "weight", "bias"))
    return (_convolved(x, weight, bias) / (WIDTH + 1) ** 0.5,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Sequences of unit size, filters that keep it, so that SiLU is met on both sides of 0."""
    batch, dim, length = (workload.dims[name] for name in ("batch", "dim", "length"))
    operands = {
        "x": generator.normal((batch, dim, length)),
        "weight": 0.7 * generator.normal((dim, WIDTH)),
        "bias": 0.5 * generator.normal((dim,)),
    }
    return {name: value.to(workload.dtype) for name, value in operands.items()}
