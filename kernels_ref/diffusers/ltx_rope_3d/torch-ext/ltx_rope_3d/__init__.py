"""Rotary embedding over interleaved pairs of the hidden width, into a tensor that the caller owns."""

import torch

from ._ops import ops


def ltx_rope_3d(out: torch.Tensor, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """out = x * cos + (-x[1], x[0], -x[3], ...) * sin; shapes (batch, tokens, hidden), (tokens, hidden)."""
    ops.ltx_rope_3d(out, x, cos, sin)


__all__ = ["ltx_rope_3d"]
