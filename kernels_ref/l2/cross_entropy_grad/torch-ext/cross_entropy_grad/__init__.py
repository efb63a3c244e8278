"""Cross-entropy of every token and, in place of the logits, their gradient."""

import torch

from ._ops import ops


def cross_entropy_grad(
    loss: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    grad_loss: torch.Tensor,
    *,
    ignore_index: int,
) -> None:
    """logits[i] becomes (softmax(logits[i]) - onehot(target[i])) * grad_loss[i]; logits (tokens, vocab)."""
    ops.cross_entropy_grad(loss, logits, target, grad_loss, ignore_index)


__all__ = ["cross_entropy_grad"]
