"""Residual add, then RMS norm of the sum; both written into tensors that the caller owns."""

import torch

from ._ops import ops


def add_rms_norm(
    out: torch.Tensor, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, *, eps: float
) -> None:
    """residual += x; out = rms_norm(residual) * weight; shapes (rows, cols), (cols,)."""
    ops.add_rms_norm(out, x, residual, weight, eps)


__all__ = ["add_rms_norm"]
