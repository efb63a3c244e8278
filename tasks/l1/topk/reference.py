"""The 50 largest elements of every row, as a PyTorch user finds them.

Shapes: x (rows, cols) -> values (rows, 50) of its dtype, indices (rows, 50) int64.
"""

from __future__ import annotations

import math
from typing import Any

import torch

K = 50


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """Values and indices, descending."""
    values, indices = torch.topk(inputs["x"], K, dim=-1)
    return values, indices


def compare(outputs: Any, truths: Any, inputs: dict[str, Any]) -> float:
    """0 where the values are those of the truth and the indices different places of them, else infinity."""
    (values, indices), x = outputs, inputs["x"]
    if not bool((values == truths[0]).all()) or bool(((indices < 0) | (indices >= x.shape[-1])).any()):
        return math.inf
    ordered = indices.sort(dim=-1).values
    right = bool((x.gather(-1, indices) == values).all()) and bool((ordered.diff(dim=-1) > 0).all())
    return 0.0 if right else math.inf


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Rows of different spread and offset, a third of them all negative."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    spread = generator.uniform((rows, 1), 0.5, 4.0)
    offset = 40.0 * generator.integers((rows, 1), -1, 2).to(torch.float32)
    return {"x": (generator.normal((rows, cols)) * spread + offset).to(workload.dtype)}
