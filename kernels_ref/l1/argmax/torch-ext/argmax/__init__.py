"""Position of the largest element of every row, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def argmax(index: torch.Tensor, x: torch.Tensor) -> None:
    """index[i] = the first position of the largest x[i, j], or of a NaN; x (rows, cols)."""
    ops.argmax(index, x)


__all__ = ["argmax"]
