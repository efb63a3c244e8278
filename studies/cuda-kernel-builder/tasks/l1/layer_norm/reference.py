"""Layer norm over the last axis with weight and bias, as a PyTorch user writes it.

Shapes: x (rows, cols), weight (cols,), bias (cols,) -> out (rows, cols), all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    x = inputs["x"]
    return (F.layer_norm(x, (x.shape[-1],), inputs["weight"], inputs["bias"], inputs["eps"]),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Rows of very different spread and offset, so that mean, variance and eps all matter."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    spread = torch.exp2(generator.uniform((rows, 1), -8.0, 3.0))  # variance from 1.5e-5, near eps, to 64
    offset = generator.uniform((rows, 1), -4.0, 4.0)
    x = (generator.normal((rows, cols)) + offset) * spread
    weight = 1.0 + 0.2 * generator.normal((cols,))
    bias = 0.3 * generator.normal((cols,))
    operands = {"x": x, "weight": weight, "bias": bias}
    return {name: value.to(workload.dtype) for name, value in operands.items()}
