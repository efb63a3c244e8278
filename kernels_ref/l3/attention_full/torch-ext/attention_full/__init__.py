"""Attention without a mask, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def attention_full(
    out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float
) -> None:
    """out = softmax(scale * q k^T) v; shapes (batch, heads, queries or keys, head_dim)."""
    ops.attention_full(out, q, k, v, scale)


__all__ = ["attention_full"]
