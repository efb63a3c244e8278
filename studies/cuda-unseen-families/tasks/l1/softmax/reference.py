"""Softmax over the last axis, as a PyTorch user writes it.

Shapes: x (rows, cols) -> out (rows, cols), both of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its input; on float64 inputs it is the truth."""
    return (F.softmax(inputs["x"], dim=-1),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Flat and peaked rows, two thirds of them shifted so far that exp without the maximum fails."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    sharpness = generator.uniform((rows, 1), 0.5, 4.0)
    shift = 120.0 * generator.integers((rows, 1), -1, 2).to(torch.float32)
    x = generator.normal((rows, cols)) * sharpness + shift
    return {"x": x.to(workload.dtype)}
