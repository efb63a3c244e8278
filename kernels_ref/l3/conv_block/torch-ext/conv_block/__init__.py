"""3 x 3 convolution, bias, SiLU and residual add, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def conv_block(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor
) -> None:
    """out = residual + silu(conv(x) + bias); out and residual (batch, out_channels, height, width)."""
    ops.conv_block(out, x, weight, bias, residual)


__all__ = ["conv_block"]
