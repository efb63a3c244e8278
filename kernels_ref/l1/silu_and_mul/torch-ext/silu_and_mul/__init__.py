"""SiLU-gated activation, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def silu_and_mul(out: torch.Tensor, x: torch.Tensor) -> None:
    """out = silu(x[:, :cols]) * x[:, cols:]; shapes (rows, cols), (rows, 2 * cols)."""
    ops.silu_and_mul(out, x)


__all__ = ["silu_and_mul"]
