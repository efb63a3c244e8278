"""Bias and tanh-GELU gate, as a feed-forward block in PyTorch writes them.

Shapes: x (tokens, 2 * inner), bias (2 * inner,) -> out (tokens, inner), all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    value, gate = (inputs["x"] + inputs["bias"]).chunk(2, dim=-1)
    return (value * F.gelu(gate, approximate="tanh"),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Gates that reach both the linear and the flat part of GELU; biases that matter in both halves."""
    tokens, inner = workload.dims["tokens"], workload.dims["inner"]
    value = generator.normal((tokens, inner))
    gate = 1.5 * generator.normal((tokens, inner))
    bias = 0.5 * generator.normal((2 * inner,))
    return {"x": torch.cat((value, gate), dim=-1).to(workload.dtype), "bias": bias.to(workload.dtype)}
