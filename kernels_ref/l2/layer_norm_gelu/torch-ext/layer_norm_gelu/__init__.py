"""Layer norm over the last axis, then exact GELU, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def layer_norm_gelu(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, eps: float
) -> None:
    """out = gelu(layer_norm(x) * weight + bias); shapes (rows, cols), (cols,)."""
    ops.layer_norm_gelu(out, x, weight, bias, eps)


__all__ = ["layer_norm_gelu"]
