"""3 x 3 convolution with padding 1, as a PyTorch user writes it.

Shapes: x (batch, in_channels, height, width), weight (out_channels, in_channels, 3, 3)
-> out (batch, out_channels, height, width), all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    return (F.conv2d(inputs["x"], inputs["weight"], padding=1),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """(|weight| * |x|) / sqrt(9 * in_channels): what rounding errors of the sum grow with."""
    x, weight = inputs["x"], inputs["weight"]
    return (F.conv2d(x.abs(), weight.abs(), padding=1) / (9 * x.shape[1]) ** 0.5,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Images of unit size, filters that keep it."""
    names = ("batch", "in_channels", "out_channels", "height", "width")
    batch, in_channels, out_channels, height, width = (workload.dims[name] for name in names)
    x = generator.normal((batch, in_channels, height, width))
    weight = generator.normal((out_channels, in_channels, 3, 3)) * (9 * in_channels) ** -0.5
    return {"x": x.to(workload.dtype), "weight": weight.to(workload.dtype)}
