"""Per-head RMS norm and rotary embedding of the query and key heads of packed QKV, in place."""

import torch

from ._ops import ops


def qk_norm_rope(
    qkv: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    eps: float,
) -> None:
    """Normalises and rotates qkv[:, :-2] (queries) and qkv[:, -2] (keys); qkv[:, -1] (values) stays.

    Shapes: (tokens, groups + 2, kv_heads, head_dim), weights (head_dim,), tables (tokens, head_dim // 2).
    """
    ops.qk_norm_rope(qkv, q_weight, k_weight, cos, sin, eps)


__all__ = ["qk_norm_rope"]
