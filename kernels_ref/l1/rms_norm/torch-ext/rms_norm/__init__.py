"""RMS norm over the last axis, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def rms_norm(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *, eps: float) -> None:
    """out[i, j] = x[i, j] / sqrt(mean_k x[i, k]^2 + eps) * weight[j]; shapes (rows, cols), (cols,)."""
    ops.rms_norm(out, x, weight, eps)


__all__ = ["rms_norm"]
