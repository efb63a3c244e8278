"""A linear layer on float8 operands with a scale for every row, as a PyTorch user writes it.

Shapes: a (m, k) and b (n, k) float8_e4m3fn, scale_a (m,) and scale_b (n,) float32 -> out (m, n).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """A product of widened operands, then the scales; on float64 inputs it is the truth."""
    a, b, scale_a, scale_b = (inputs[name] for name in ("a", "b", "scale_a", "scale_b"))
    # 8-bit values are exact in bfloat16, the type of the fast products on a GPU.
    fast = a.is_cuda and scale_a.dtype == torch.float32
    wide = torch.bfloat16 if fast else scale_a.dtype
    product = F.linear(a.to(wide), b.to(wide)).to(scale_a.dtype) * scale_a[:, None] * scale_b[None, :]
    return (product.to(wide),)


def library(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """PyTorch's own fused product."""
    a, b = inputs["a"], inputs["b"]
    scales = {"scale_a": inputs["scale_a"][:, None], "scale_b": inputs["scale_b"][None, :]}
    dtype = torch.bfloat16 if a.is_cuda else torch.float32
    return (torch._scaled_mm(a, b.t(), out_dtype=dtype, **scales),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """What a product of these rows is like when signs are random: shape (m, n)."""
    a = inputs["a"].abs() * inputs["scale_a"].abs()[:, None]
    b = inputs["b"].abs() * inputs["scale_b"].abs()[:, None]
    return (F.linear(a, b) / a.shape[-1] ** 0.5,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Rows that were quantised by their largest value, about 4 sigma, and the scales that undo that.

    One row of `a` in eight has denormals only, as a token far smaller than others has under a shared scale.
    """
    m, n, k = (workload.dims[name] for name in ("m", "n", "k"))

    def quantised(rows: int, size: torch.Tensor | float = 100.0) -> torch.Tensor:
        values = (generator.normal((rows, k)) + 0.1) * size
        return values.clamp_(-448.0, 448.0).to(torch.float8_e4m3fn)

    size_a = torch.where(generator.uniform((m, 1)) < 0.125, 2.0**-8, 100.0)
    scale_a = generator.uniform((m,), 0.25, 2.0) / size_a[:, 0]
    scale_b = generator.uniform((n,), 0.25, 2.0) * (0.01 / k**0.5)
    return {"a": quantised(m, size_a), "b": quantised(n), "scale_a": scale_a, "scale_b": scale_b}
