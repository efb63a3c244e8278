"""Layer norm without weights, times 1 + scale plus shift of the sample (adaLN), as a PyTorch user writes it.

Shapes: x (batch, tokens, cols), shift, scale (batch, cols) -> out (batch, tokens, cols), all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    x = inputs["x"]
    y = F.layer_norm(x, (x.shape[-1],), eps=inputs["eps"])
    return (y * (1 + inputs["scale"].unsqueeze(1)) + inputs["shift"].unsqueeze(1),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Rows of very different spread and offset, so that mean, variance and eps all matter."""
    batch, tokens, cols = (workload.dims[name] for name in ("batch", "tokens", "cols"))
    spread = torch.exp2(generator.uniform((batch, tokens, 1), -9.0, 3.0))  # variance from 4e-6, near eps
    offset = generator.uniform((batch, tokens, 1), -4.0, 4.0)
    x = (generator.normal((batch, tokens, cols)) + offset) * spread
    shift = 0.5 * generator.normal((batch, cols))
    scale = 0.4 * generator.normal((batch, cols))
    operands = {"x": x, "shift": shift, "scale": scale}
    return {name: value.to(workload.dtype) for name, value in operands.items()}
