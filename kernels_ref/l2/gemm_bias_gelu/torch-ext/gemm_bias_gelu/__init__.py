"""A linear layer with bias, then GELU (tanh), written into a tensor that the caller owns."""

import torch

from ._ops import ops


def gemm_bias_gelu(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    """out = gelu_tanh(x @ weight.T + bias); shapes (m, n), (m, k), (n, k), (n,)."""
    ops.gemm_bias_gelu(out, x, weight, bias)


__all__ = ["gemm_bias_gelu"]
