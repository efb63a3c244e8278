"""Clamped SwiGLU of interleaved gate and linear columns, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def swiglu_clamped(out: torch.Tensor, x: torch.Tensor, *, alpha: float, limit: float) -> None:
    """out = gate * sigmoid(alpha * gate) * (linear + 1), clamped; shapes (rows, cols), (rows, 2 * cols)."""
    ops.swiglu_clamped(out, x, alpha, limit)


__all__ = ["swiglu_clamped"]
