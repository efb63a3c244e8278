"""Dynamic fp8 (e4m3) quantisation of every row, written into tensors that the caller owns."""

import torch

from ._ops import ops


def quantize_fp8(q: torch.Tensor, scale: torch.Tensor, x: torch.Tensor) -> None:
    """q = fp8(x / scale), scale = absmax of the row / 448; q, x (rows, cols), scale (rows,)."""
    ops.quantize_fp8(q, scale, x)


__all__ = ["quantize_fp8"]
