"""3 x 3 convolution, bias, SiLU and residual add, as a PyTorch user writes it.

Shapes: x (batch, in_channels, height, width), weight (out_channels, in_channels, 3, 3), bias (out_channels,),
residual (batch, out_channels, height, width) -> out like residual, all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    y = F.conv2d(inputs["x"], inputs["weight"], inputs["bias"], padding=1)
    return (inputs["residual"] + F.silu(y),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """|residual| + (|bias| + |weight| * |x|) / sqrt(9 * in_channels + 1): SiLU has slopes up to 1.1."""
    x, weight, bias, residual = (inputs[name].abs() for name in ("x", "weight", "bias", "residual"))
    return (residual + F.conv2d(x, weight, bias, padding=1) / (9 * x.shape[1] + 1) ** 0.5,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Images of unit size, and filters that keep it, so that SiLU is met on both sides of 0."""
    names = ("batch", "in_channels", "out_channels", "height", "width")
    batch, in_channels, out_channels, height, width = (workload.dims[name] for name in names)
    operands = {
        "x": generator.normal((batch, in_channels, height, width)),
        "weight": 1.5 * generator.normal((out_channels, in_channels, 3, 3)) * (9 * in_channels) ** -0.5,
        "bias": 0.5 * generator.normal((out_channels,)),
        "residual": generator.normal((batch, out_channels, height, width)),
    }
    return {name: value.to(workload.dtype) for name, value in operands.items()}
