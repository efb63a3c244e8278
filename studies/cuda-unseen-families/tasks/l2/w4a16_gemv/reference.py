"""A few vectors times a matrix of packed 4-bit weights: dequantise, then a linear layer.

Shapes: x (batch, k), packed (n, k / 2) uint8, scales (n, k / 128) -> out (batch, n).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

GROUP = 128
"""Weights that share a scale."""


def _dequantised(inputs: dict[str, Any]) -> torch.Tensor:
    """(n, k), in the dtype of the scales."""
    packed, scales = inputs["packed"], inputs["scales"]
    q = torch.stack((packed & 15, packed >> 4), dim=-1).to(scales.dtype) - 8
    rows, groups = scales.shape
    return (q.reshape(rows, groups, GROUP) * scales[..., None]).reshape(rows, groups * GROUP)


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of x and scales; on float64 inputs it is the truth."""
    return (F.linear(inputs["x"], _dequantised(inputs)),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """(|x| |w|^T) / sqrt(k), w the dequantised weights."""
    x = inputs["x"]
    return (F.linear(x.abs(), _dequantised(inputs).abs()) / x.shape[-1] ** 0.5,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Any byte; scales of about the size that gives outputs of unit size, different for every group."""
    batch, n, groups = (workload.dims[name] for name in ("batch", "n", "groups"))
    x = generator.normal((batch, groups * GROUP))
    packed = generator.integers((n, groups * GROUP // 2), 0, 256).to(torch.uint8)
    # q - 8 has an RMS of 4.6
    scales = torch.exp2(generator.uniform((n, groups), -1.5, 1.0)) * (groups * GROUP) ** -0.5 / 4.6
    return {"x": x.to(workload.dtype), "packed": packed, "scales": scales.to(workload.dtype)}
