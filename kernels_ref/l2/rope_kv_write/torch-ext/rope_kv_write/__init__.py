"""Rotary embedding of keys, and a write of keys and values into a paged cache, in place."""

import torch

from ._ops import ops


def rope_kv_write(
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Caches (blocks, block_size, kv_heads, head_dim); key, value (tokens, kv_heads, head_dim); slots."""
    ops.rope_kv_write(key_cache, value_cache, key, value, cos, sin, slots)


__all__ = ["rope_kv_write"]
