"""RMS norm and dynamic fp8 (e4m3) quantisation of every row, as a PyTorch user writes it.

Shapes: x (rows, cols), weight (cols,) -> q (rows, cols) float8_e4m3fn, scale (rows,) float32.
"""

from __future__ import annotations

from typing import Any

import torch

LARGEST = 448.0
SMALLEST = 1e-12
MIDDLE = 4e-6
"""How near, relative to it, a quotient may lie to the middle between two numbers to be rounded either way:
10 times what six float32 roundings do to it. The error of the norm is in the scale too and cancels."""
SCALE_ERROR = 2e-5


def _quotient(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(norm / scale before rounding, scale)."""
    y = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight
    scale = y.abs().amax(dim=-1).clamp(min=SMALLEST) / LARGEST
    return (y / scale.unsqueeze(-1)).clamp(-LARGEST, LARGEST), scale


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in float32, whatever the dtype of x and weight."""
    x, weight = inputs["x"].to(torch.float32), inputs["weight"].to(torch.float32)
    quotient, scale = _quotient(x, weight, inputs["eps"])
    return quotient.to(torch.float8_e4m3fn), scale


def truth(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The quotient before rounding, which `compare` needs, and the scale, in float64."""
    return _quotient(inputs["x"], inputs["weight"], inputs["eps"])


def compare(
    outputs: tuple[torch.Tensor, ...], truths: tuple[torch.Tensor, ...], inputs: dict[str, torch.Tensor]
) -> float:
    """At most 1 where every q is the number nearest to its quotient, or as near give or take 2 MIDDLE."""
    del inputs
    q, scale = (value.to(torch.float64) for value in outputs)
    quotient, exact = truths
    nearest = quotient.to(torch.float32).to(torch.float8_e4m3fn).to(torch.float64)
    farther = (q - quotient).abs() - (nearest - quotient).abs()
    farther = farther / (2.0 * MIDDLE * quotient.abs() + torch.finfo(torch.float64).tiny)
    off = (scale - exact).abs() / exact
    worst = torch.maximum(farther.max(), off.max() / SCALE_ERROR)
    return float(worst)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Squares with a sign, so that every exponent occurs; rows of a mean square around eps, zero rows."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    spread = torch.exp2(generator.uniform((rows, 1), -9.0, 3.0))
    spread[1:] *= generator.uniform((rows, 1))[1:] > 0.1
    normal = generator.normal((rows, cols))
    weight = 1.0 + 0.3 * generator.normal((cols,))
    return {"x": (normal * normal.abs() * spread).to(workload.dtype), "weight": weight.to(workload.dtype)}
