"""Attention of text and image tokens to all of both, written into tensors that the caller owns."""

import torch

from ._ops import ops


def flux_joint_attention(
    out_text: torch.Tensor,
    out_image: torch.Tensor,
    q_text: torch.Tensor,
    k_text: torch.Tensor,
    v_text: torch.Tensor,
    q_image: torch.Tensor,
    k_image: torch.Tensor,
    v_image: torch.Tensor,
    *,
    scale: float,
) -> None:
    """softmax(scale * q k^T) v over text, then image tokens; all are (batch, tokens, heads, head_dim)."""
    ops.flux_joint_attention(out_text, out_image, q_text, k_text, v_text, q_image, k_image, v_image, scale)


__all__ = ["flux_joint_attention"]
