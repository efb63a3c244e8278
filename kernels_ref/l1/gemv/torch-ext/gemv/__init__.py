"""Matrix times a few vectors (gemv), written into a tensor that the caller owns."""

import torch

from ._ops import ops


def gemv(out: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> None:
    """out = x @ w.T; shapes (batch, n), (batch, k), (n, k)."""
    ops.gemv(out, x, w)


__all__ = ["gemv"]
