"""Selective state-space scan (Mamba), written into a tensor that the caller owns."""

import torch

from ._ops import ops


def selective_scan(
    out: torch.Tensor,
    u: torch.Tensor,
    delta: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor,
) -> None:
    """Shapes: out, u, delta (batch, dim, length), A (dim, state), B, C (batch, state, length), D (dim,)."""
    ops.selective_scan(out, u, delta, A, B, C, D)


__all__ = ["selective_scan"]
