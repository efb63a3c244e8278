"""Softmax of scaled and masked attention scores, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def masked_softmax(out: torch.Tensor, scores: torch.Tensor, mask: torch.Tensor, *, scale: float) -> None:
    """out = softmax(scores * scale) where mask; scores (batch, heads, queries, keys), mask without heads."""
    ops.masked_softmax(out, scores, mask, scale)


__all__ = ["masked_softmax"]
