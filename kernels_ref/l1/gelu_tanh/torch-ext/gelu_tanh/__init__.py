"""GELU in its tanh approximation, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def gelu_tanh(out: torch.Tensor, x: torch.Tensor) -> None:
    """out = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))); shapes (count,)."""
    ops.gelu_tanh(out, x)


__all__ = ["gelu_tanh"]
