"""RMS norm over the last axis, as a PyTorch user writes it.

Shapes: x (rows, cols), weight (cols,) -> out (rows, cols), all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    x, weight = inputs["x"], inputs["weight"]
    return (F.rms_norm(x, (x.shape[-1],), weight, inputs["eps"]),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Rows of very different size, so that neither the norm nor eps can be left out."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    scale = torch.exp2(generator.uniform((rows, 1), -8.0, 3.0))  # mean square from 1.5e-5, near eps, to 64
    x = generator.normal((rows, cols)) * scale
    weight = 1.0 + 0.1 * generator.normal((cols,))
    return {"x": x.to(workload.dtype), "weight": weight.to(workload.dtype)}
