"""Router of a mixture of experts, written into tensors that the caller owns."""

import torch

from ._ops import ops


def moe_gating(
    weights: torch.Tensor, ids: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor, *, scaling: float
) -> None:
    """The 8 experts with the largest sigmoid(logits) + bias, and their scores scaled to sum up to `scaling`.

    Shapes: weights (tokens, 8) float32, ids (tokens, 8) int32, logits (tokens, experts), bias (experts,).
    """
    ops.moe_gating(weights, ids, logits, bias, scaling)


__all__ = ["moe_gating"]
