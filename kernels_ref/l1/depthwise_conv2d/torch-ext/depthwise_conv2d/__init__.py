"""Depthwise 2-d convolution, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def depthwise_conv2d(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> None:
    """Stride 1, same padding; out and x (batch, channels, height, width), see torch_binding.h."""
    ops.depthwise_conv2d(out, x, weight, bias)


__all__ = ["depthwise_conv2d"]
