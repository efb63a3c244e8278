"""SiLU-gated activation, as a PyTorch user writes it.

Shapes: x (rows, 2 * cols) -> out (rows, cols), both of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its input; on float64 inputs it is the truth."""
    gate, value = inputs["x"].chunk(2, dim=-1)
    return (F.silu(gate) * value,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Gates wide enough to reach both the linear and the flat part of SiLU."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    gate = 2.5 * generator.normal((rows, cols))
    value = generator.normal((rows, cols))
    return {"x": torch.cat((gate, value), dim=-1).to(workload.dtype)}
