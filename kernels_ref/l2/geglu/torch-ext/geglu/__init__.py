"""GELU-gated activation (exact GELU), written into a tensor that the caller owns."""

import torch

from ._ops import ops


def geglu(out: torch.Tensor, x: torch.Tensor) -> None:
    """out = x[:, :cols] * gelu(x[:, cols:]); shapes (rows, cols), (rows, 2 * cols)."""
    ops.geglu(out, x)


__all__ = ["geglu"]
