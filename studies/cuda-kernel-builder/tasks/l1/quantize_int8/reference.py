"""Symmetric int8 quantisation of every row, as a PyTorch user writes it.

Shapes: x (rows, cols) -> q (rows, cols) int8, scale (rows,) float32.
"""

from __future__ import annotations

from typing import Any

import torch

SMALLEST = 1e-12
MIDDLE = 1e-4
"""How near to the middle between two integers a quotient may be rounded either way: 4 times what three
float32 roundings do to a quotient of 127."""
SCALE_ERROR = 1e-6


def _quotient(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(x / scale before rounding, scale)."""
    scale = x.abs().amax(dim=-1).clamp(min=SMALLEST) / 127.0
    return x / scale.unsqueeze(-1), scale


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in float32, whatever the dtype of x."""
    quotient, scale = _quotient(inputs["x"].to(torch.float32))
    return quotient.round().clamp(-127.0, 127.0).to(torch.int8), scale


def truth(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The quotient before rounding, which `compare` needs, and the scale, in float64."""
    return _quotient(inputs["x"])


def compare(
    outputs: tuple[torch.Tensor, ...], truths: tuple[torch.Tensor, ...], inputs: dict[str, torch.Tensor]
) -> float:
    """At most 1 where every q is the integer nearest to its quotient, or as near give or take 2 MIDDLE."""
    del inputs
    q, scale = (value.to(torch.float64) for value in outputs)
    quotient, exact = truths
    farther = (q - quotient).abs() - (quotient.round() - quotient).abs()
    off = (scale - exact).abs() / exact
    return max(float(farther.max()) / (2.0 * MIDDLE), float(off.max()) / SCALE_ERROR)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Rows of very different spread, a tenth of them all zero, but never the first."""
    rows, cols = workload.dims["rows"], workload.dims["cols"]
    spread = torch.exp2(generator.uniform((rows, 1), -8.0, 4.0))
    spread[1:] *= generator.uniform((rows, 1))[1:] > 0.1
    return {"x": (generator.normal((rows, cols)) * spread).to(workload.dtype)}
