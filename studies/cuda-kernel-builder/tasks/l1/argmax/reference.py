"""Position of the largest element of every row, as a PyTorch user finds it.

Shapes: x (rows, cols) -> index (rows,) int64.
"""

from __future__ import annotations

import math
from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """One of the positions of each row's maximum."""
    return (torch.argmax(inputs["x"], dim=-1),)


def compare(outputs: Any, truths: Any, inputs: dict[str, Any]) -> float:
    """0 where every position holds its row's maximum (or a NaN, where there is one), else infinity."""
    del truths
    (index,), x = outputs, inputs["x"]
    if bool(((index < 0) | (index >= x.shape[-1])).any()):
        return math.inf
    found, largest = x.gather(-1, index.unsqueeze(-1)).squeeze(-1), x.amax(dim=-1)
    right = (found == largest) | (found.isnan() & largest.isnan())
    return 0.0 if bool(right.all()) else math.inf


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Rows of different spread and offset, a third all negative, with seven close calls at the top."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    spread = generator.uniform((rows, 1), 0.5, 4.0)
    offset = 40.0 * generator.integers((rows, 1), -1, 2).to(torch.float32)
    x = generator.normal((rows, cols)) * spread + offset
    # Closer than 16 bits can tell, so that whoever rounds before comparing takes the wrong one.
    top = x.amax(dim=-1, keepdim=True)
    steps = torch.arange(1, 8, device=generator.device) * 2.0**-14
    x.scatter_(-1, generator.integers((rows, 7), 0, cols), top + top.abs() * steps)
    return {"x": x.to(workload.dtype)}
