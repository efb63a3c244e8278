"""Layer norm over the last axis with weight and bias, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def layer_norm(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, eps: float
) -> None:
    """out = (x - mean) / sqrt(var + eps) * weight + bias by row; shapes (rows, cols), (cols,)."""
    ops.layer_norm(out, x, weight, bias, eps)


__all__ = ["layer_norm"]
