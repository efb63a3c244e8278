"""Grouped matrix product of a mixture of experts, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def grouped_gemm(out: torch.Tensor, x: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor) -> None:
    """out[i] = x[i] @ weights[e].T for offsets[e] <= i < offsets[e + 1].

    Shapes: out (tokens, n), x (tokens, k), weights (experts, n, k), offsets (experts + 1,).
    """
    ops.grouped_gemm(out, x, weights, offsets)


__all__ = ["grouped_gemm"]
