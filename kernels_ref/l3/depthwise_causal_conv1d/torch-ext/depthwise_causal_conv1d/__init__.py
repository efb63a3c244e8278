"""Depthwise causal convolution of sequences, then SiLU, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def depthwise_causal_conv1d(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> None:
    """Shapes (batch, dim, length) twice, (dim, 4), (dim,)."""
    ops.depthwise_causal_conv1d(out, x, weight, bias)


__all__ = ["depthwise_causal_conv1d"]
