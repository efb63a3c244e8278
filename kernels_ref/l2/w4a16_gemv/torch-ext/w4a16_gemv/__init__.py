"""A few vectors times a matrix of packed 4-bit weights, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def w4a16_gemv(out: torch.Tensor, x: torch.Tensor, packed: torch.Tensor, scales: torch.Tensor) -> None:
    """out = x @ dequantised(packed, scales).T; shapes (batch, n), (batch, k), (n, k / 2), (n, k / 128)."""
    ops.w4a16_gemv(out, x, packed, scales)


__all__ = ["w4a16_gemv"]
