"""Running sums along the last axis, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def cumsum(out: torch.Tensor, x: torch.Tensor) -> None:
    """out[i, j] = sum of x[i, k] over k <= j, added in float32; shapes (rows, cols)."""
    ops.cumsum(out, x)


__all__ = ["cumsum"]
