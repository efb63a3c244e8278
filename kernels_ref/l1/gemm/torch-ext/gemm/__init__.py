"""Matrix product with the weights of a linear layer, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def gemm(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """out = a @ b.T; shapes (m, n), (m, k), (n, k)."""
    ops.gemm(out, a, b)


__all__ = ["gemm"]
