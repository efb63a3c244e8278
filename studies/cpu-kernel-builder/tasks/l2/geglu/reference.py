"""GELU-gated activation, as diffusion models in PyTorch write it.

Shapes: x (rows, 2 * cols) -> out (rows, cols), both of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its input; on float64 inputs it is the truth."""
    value, gate = inputs["x"].chunk(2, dim=-1)
    return (value * F.gelu(gate),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Gates wide enough to reach both the linear and the flat part of GELU."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    value = generator.normal((rows, cols))
    gate = 1.5 * generator.normal((rows, cols))
    return {"x": torch.cat((value, gate), dim=-1).to(workload.dtype)}
