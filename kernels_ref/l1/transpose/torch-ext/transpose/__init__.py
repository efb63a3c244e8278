"""Transposition of the last two axes, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def transpose(out: torch.Tensor, x: torch.Tensor) -> None:
    """out[b, j, i] = x[b, i, j]; shapes (batch, cols, rows), (batch, rows, cols)."""
    ops.transpose(out, x)


__all__ = ["transpose"]
