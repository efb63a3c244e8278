"""Clamped SwiGLU of interleaved gate and linear columns, as gpt-oss in PyTorch writes it.

Shapes: x (rows, 2 * cols) -> out (rows, cols), both of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its input; on float64 inputs it is the truth."""
    alpha, limit = inputs["alpha"], inputs["limit"]
    gate = inputs["x"][..., ::2].clamp(max=limit)
    linear = inputs["x"][..., 1::2].clamp(min=-limit, max=limit)
    return (gate * torch.sigmoid(alpha * gate) * (linear + 1),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Both columns wide enough that each bound of the clamps is reached now and then."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    spread = torch.exp2(generator.uniform((rows, 1), -1.0, 2.5))  # standard deviation from 0.5 to 5.7
    return {"x": (generator.normal((rows, 2 * cols)) * spread).to(workload.dtype)}
