"""Bias and tanh-GELU gate of two packed halves, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def ltx_geglu(out: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> None:
    """out = v * gelu_tanh(g) with v, g the halves of x + bias.

    Shapes: (tokens, inner), (tokens, 2 * inner), (2 * inner,).
    """
    ops.ltx_geglu(out, x, bias)


__all__ = ["ltx_geglu"]
