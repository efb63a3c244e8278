"""Embedding lookup, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def embedding(out: torch.Tensor, ids: torch.Tensor, table: torch.Tensor) -> None:
    """out[t] = table[ids[t]]; shapes (tokens, dim), (tokens,) int64, (vocab, dim)."""
    ops.embedding(out, ids, table)


__all__ = ["embedding"]
