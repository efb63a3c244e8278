"""RMS norm of queries and keys over the whole hidden width, into tensors that the caller owns."""

import torch

from ._ops import ops


def ltx_rms_norm(
    q_out: torch.Tensor,
    k_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    *,
    eps: float,
) -> None:
    """q_out = q / rms(q) * q_weight and k_out alike; shapes (batch, tokens, hidden), (hidden,)."""
    ops.ltx_rms_norm(q_out, k_out, q, k, q_weight, k_weight, eps)


__all__ = ["ltx_rms_norm"]
