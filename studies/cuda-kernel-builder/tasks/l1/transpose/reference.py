"""Transposition of the last two axes, as a PyTorch user writes it.

Shapes: x (batch, rows, cols) -> out (batch, cols, rows), both of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its input; on float64 inputs it is the truth."""
    return (inputs["x"].transpose(1, 2).contiguous(),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Normal values: no two places hold the same but by chance."""
    shape = tuple(workload.dims[name] for name in ("batch", "rows", "cols"))
    return {"x": generator.normal(shape).to(workload.dtype)}
