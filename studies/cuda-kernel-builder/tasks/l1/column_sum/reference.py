"""Sum over the rows of a matrix, as the backward pass of a bias in PyTorch does it.

Shapes: x (rows, cols) -> out (cols,) float32.
"""

from __future__ import annotations

import math
from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The sums in float32; on float64 inputs they are the truth."""
    x = inputs["x"]
    return (x.sum(dim=0, dtype=torch.promote_types(x.dtype, torch.float32)),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """|A||B| / sqrt(K) of a product with a vector of ones."""
    x = inputs["x"]
    return (x.abs().sum(dim=0) / math.sqrt(x.shape[0]),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Columns of very different size, each with a mean that its sum shows beside the noise, and no more."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    size = torch.exp2(generator.uniform((cols,), -3.0, 3.0))
    mean = 2.0 / math.sqrt(rows) * generator.normal((cols,))
    return {"x": ((generator.normal((rows, cols)) + mean) * size).to(workload.dtype)}
