"""GELU in its tanh approximation, as a PyTorch user writes it.

Shapes: x (count,) -> out (count,), both of one dtype.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its input."""
    return (F.gelu(inputs["x"], approximate="tanh"),)


def truth(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The same function; 1 + tanh(u) would cancel for negative x, even in float64."""
    x = inputs["x"]
    return (x * torch.sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Wide enough to reach both the linear and the flat part, and mostly in between."""
    return {"x": (2.0 * generator.normal((workload.dims["count"],))).to(workload.dtype)}
