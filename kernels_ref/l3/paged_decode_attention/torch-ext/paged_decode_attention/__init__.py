"""Attention of one query per sequence to a paged cache, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def paged_decode_attention(
    out: torch.Tensor,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    *,
    scale: float,
) -> None:
    """out, q (batch, heads, head_dim); caches (blocks, block_size, kv_heads, head_dim); the others int32."""
    ops.paged_decode_attention(out, q, k_cache, v_cache, block_table, context_lens, scale)


__all__ = ["paged_decode_attention"]
