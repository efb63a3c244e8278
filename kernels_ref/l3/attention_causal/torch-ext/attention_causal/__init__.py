"""Causal attention, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def attention_causal(
    out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float
) -> None:
    """out = softmax(scale * q k^T, keys up to the query's place) v; all (batch, heads, length, head_dim)."""
    ops.attention_causal(out, q, k, v, scale)


__all__ = ["attention_causal"]
