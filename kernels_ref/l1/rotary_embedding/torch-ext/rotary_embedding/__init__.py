"""Rotary position embedding, halves paired, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def rotary_embedding(out: torch.Tensor, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Rotate (x[..., i], x[..., i + head_dim // 2]) by the angle of (token, i)."""
    ops.rotary_embedding(out, x, cos, sin)


__all__ = ["rotary_embedding"]
