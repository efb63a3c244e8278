"""Cross-entropy of every token with its log-sum-exp, written into the caller's tensors."""

import torch

from ._ops import ops


def cross_entropy(
    loss: torch.Tensor,
    lse: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int,
) -> None:
    """loss[i] = lse[i] - logits[i, target[i]], 0 where ignored; logits (tokens, vocab), others (tokens,)."""
    ops.cross_entropy(loss, lse, logits, target, ignore_index)


__all__ = ["cross_entropy"]
