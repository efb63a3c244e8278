"""Depthwise 2-d convolution with padding that keeps the size, as a PyTorch user writes it.

Shapes: x (batch, channels, height, width), weight (channels, kernel, kernel), bias (channels,) -> out like x.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    weight = inputs["weight"]
    channels, kernel = weight.shape[0], weight.shape[-1]
    return (
        F.conv2d(inputs["x"], weight[:, None], inputs["bias"], padding=(kernel - 1) // 2, groups=channels),
    )


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """(|bias| + |weight| * |x|) / sqrt(kernel^2 + 1): what rounding errors of the sum grow with."""
    absolute = {name: inputs[name].abs() for name in ("x", "weight", "bias")}
    terms = inputs["weight"].shape[-1] ** 2 + 1
    return (reference(absolute)[0] / terms**0.5,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Images of unit size, filters that keep it."""
    names = ("batch", "channels", "height", "width", "kernel")
    batch, channels, height, width, kernel = (workload.dims[name] for name in names)
    operands = {
        "x": generator.normal((batch, channels, height, width)),
        "weight": generator.normal((channels, kernel, kernel)) / kernel,
        "bias": 0.5 * generator.normal((channels,)),
    }
    return {name: value.to(workload.dtype) for name, value in operands.items()}
