"""Symmetric int8 quantisation of every row, written into tensors that the caller owns."""

import torch

from ._ops import ops


def quantize_int8(q: torch.Tensor, scale: torch.Tensor, x: torch.Tensor) -> None:
    """q = round(x / scale), scale = absmax of the row / 127; q, x (rows, cols), scale (rows,)."""
    ops.quantize_int8(q, scale, x)


__all__ = ["quantize_int8"]
