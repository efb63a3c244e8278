"""Matrix product of float8 operands with a scale for every row, written into the caller's tensor."""

import torch

from ._ops import ops


def gemm_fp8(
    out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> None:
    """out = (a @ b.T) * scale_a[:, None] * scale_b; shapes (m, n), (m, k), (n, k), (m,), (n,)."""
    ops.gemm_fp8(out, a, b, scale_a, scale_b)


__all__ = ["gemm_fp8"]
