"""Stable sort of tokens by expert and the gather of their rows, into tensors that the caller owns."""

import torch

from ._ops import ops


def moe_dispatch(
    x_sorted: torch.Tensor,
    order: torch.Tensor,
    offsets: torch.Tensor,
    x: torch.Tensor,
    ids: torch.Tensor,
    load: torch.Tensor,
) -> None:
    """order sorts ids.flatten() stably, x_sorted = x[order // k], offsets: where experts begin.

    Shapes: (tokens * k, hidden), (tokens * k,), (experts + 1,), (tokens, hidden), (tokens, k), (experts,).
    """
    ops.moe_dispatch(x_sorted, order, offsets, x, ids, load)


__all__ = ["moe_dispatch"]
