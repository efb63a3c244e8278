"""Rotary position embedding in the half-split style, as a PyTorch user writes it.

Shapes: x (tokens, heads, head_dim) of the workload's dtype, cos and sin (tokens, head_dim // 2) float32
-> out (tokens, heads, head_dim) of the dtype of x.
"""

from __future__ import annotations

from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op, with half-precision x promoted by the float32 tables; on float64 inputs it is the truth."""
    x = inputs["x"]
    cos, sin = inputs["cos"].unsqueeze(1), inputs["sin"].unsqueeze(1)
    a, b = x.chunk(2, dim=-1)
    return (torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Random positions up to 8191 and the usual geometric frequencies (base 10000)."""
    tokens, heads, head_dim = (workload.dims[name] for name in ("tokens", "heads", "head_dim"))
    positions = generator.integers((tokens, 1), 1, 8192).to(torch.float64)
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64, device=generator.device) / head_dim
    angles = positions * 10000.0**-exponents
    return {
        "x": generator.normal((tokens, heads, head_dim)).to(workload.dtype),
        "cos": angles.cos().to(torch.float32),
        "sin": angles.sin().to(torch.float32),
    }
