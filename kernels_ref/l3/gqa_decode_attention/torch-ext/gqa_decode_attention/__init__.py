"""Attention of one query per sequence to a cache, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def gqa_decode_attention(
    out: torch.Tensor,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float,
) -> None:
    """out, q (batch, heads, head_dim); caches (batch, kv_heads, max_len, head_dim); lengths int32."""
    ops.gqa_decode_attention(out, q, k_cache, v_cache, lengths, scale)


__all__ = ["gqa_decode_attention"]
