"""Running sums along the last axis, as a PyTorch user writes them.

Shapes: x (rows, cols) -> out (rows, cols), both of one dtype.
"""

from __future__ import annotations

import math
from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """Summed in float32 or better, in the dtype of the input; on float64 inputs it is the truth."""
    x = inputs["x"]
    wide = torch.promote_types(x.dtype, torch.float32)
    return (torch.cumsum(x, dim=-1, dtype=wide).to(x.dtype),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Rows that wander to either side, with a drift no larger than the noise of their sum."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    spread = generator.uniform((rows, 1), 0.25, 4.0)
    drift = 2.0 / math.sqrt(cols) * generator.normal((rows, 1))
    return {"x": ((generator.normal((rows, cols)) + drift) * spread).to(workload.dtype)}
