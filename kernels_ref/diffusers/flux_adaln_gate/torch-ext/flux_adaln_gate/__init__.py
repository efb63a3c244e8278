"""Gated residual and modulated layer norm, into tensors that the caller owns."""

import torch

from ._ops import ops


def flux_adaln_gate(
    out: torch.Tensor,
    norm: torch.Tensor,
    residual: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor,
    scale: torch.Tensor,
    shift: torch.Tensor,
    *,
    eps: float,
) -> None:
    """out = residual + gate * x; norm = layer_norm(out) * (1 + scale) + shift.

    Shapes: (batch, tokens, hidden); gate, scale and shift (batch, hidden).
    """
    ops.flux_adaln_gate(out, norm, residual, x, gate, scale, shift, eps)


__all__ = ["flux_adaln_gate"]
