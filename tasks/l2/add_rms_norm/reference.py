"""Residual add, then RMS norm of the sum with a weight, as a PyTorch user writes it.

Shapes: x, residual (rows, cols), weight (cols,) -> out, new residual (rows, cols), all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """(out, residual after the call) in the dtype of the inputs; on float64 inputs it is the truth."""
    total = inputs["residual"] + inputs["x"]
    return F.rms_norm(total, (total.shape[-1],), inputs["weight"], inputs["eps"]), total


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Rows of very different size, so that neither the norm nor eps can be left out; x and residual alike."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    scale = torch.exp2(generator.uniform((rows, 1), -9.0, 3.0))  # mean square from 1.2e-5, near eps, to 200
    x = generator.normal((rows, cols)) * scale
    residual = 1.5 * generator.normal((rows, cols)) * scale
    weight = 1.0 + 0.2 * generator.normal((cols,))
    operands = {"x": x, "residual": residual, "weight": weight}
    return {name: value.to(workload.dtype) for name, value in operands.items()}
