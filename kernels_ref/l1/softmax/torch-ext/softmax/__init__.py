"""Softmax over the last axis, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def softmax(out: torch.Tensor, x: torch.Tensor) -> None:
    """out[i] = exp(x[i] - max x[i]) / sum; shapes (rows, cols)."""
    ops.softmax(out, x)


__all__ = ["softmax"]
