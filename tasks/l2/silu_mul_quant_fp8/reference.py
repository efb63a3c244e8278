"""SiLU gate and row-wise FP8 quantisation, as a PyTorch user writes them.

Shapes: x (tokens, 2 * dim) -> scale (tokens, 1) float32, q (tokens, dim) float8_e4m3fn.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

_LARGEST = 448.0
_SMALLEST_EXPONENT = -6  # below 2^-6 float8_e4m3fn is subnormal: its steps stay those of this exponent
_MANTISSA_BITS = 3
_HAIR = 1e-4
_SCALE_TOLERANCE = 1e-5


def _scaled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(scale, y / scale), neither rounded; 0 for rows of zeros. In float32, or float64 where x is."""
    gate, up = x.to(torch.promote_types(x.dtype, torch.float32)).chunk(2, dim=-1)
    y = F.silu(gate) * up
    largest = y.abs().amax(dim=-1, keepdim=True)
    factor = torch.where(largest > 0, _LARGEST / largest, 0.0)
    return largest / _LARGEST, (y * factor).clamp(-_LARGEST, _LARGEST)


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op."""
    scale, z = _scaled(inputs["x"])
    return scale, z.to(torch.float8_e4m3fn)


def truth(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """Scale and y / scale in float64; the second is not rounded, for `compare`."""
    return _scaled(inputs["x"])


def compare(
    outputs: tuple[torch.Tensor, ...], truths: tuple[torch.Tensor, ...], inputs: dict[str, Any]
) -> float:
    """The larger of: error of a scale over 1e-5 of it; distance of q from z over half a step and a hair."""
    del inputs
    (scale, q), (true_scale, z) = (tuple(t.double() for t in pair) for pair in (outputs, truths))
    tiny = torch.finfo(torch.float64).tiny
    scale_error = (scale - true_scale).abs() / (_SCALE_TOLERANCE * true_scale).clamp(min=tiny)
    exponent = z.abs().clamp(min=2.0**_SMALLEST_EXPONENT).log2().floor()
    half_step = torch.exp2(exponent - _MANTISSA_BITS - 1)
    q_error = (q - z).abs() / (half_step + _HAIR * z.abs())
    return float(torch.maximum(scale_error.amax(), q_error.amax()))


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Tokens of very different size, so that each needs its own scale; a sixteenth of them is padding."""
    tokens, dim = workload.dims["tokens"], workload.dims["dim"]
    size = torch.exp2(generator.uniform((tokens, 1), -4.0, 2.0))
    size[tokens - tokens // 16 :] = 0.0
    return {"x": (generator.normal((tokens, 2 * dim)) * size).to(workload.dtype)}
