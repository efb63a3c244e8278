"""RMS norm and dynamic fp8 (e4m3) quantisation of every row, written into tensors that the caller owns."""

import torch

from ._ops import ops


def rms_norm_quant_fp8(
    q: torch.Tensor, scale: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *, eps: float
) -> None:
    """q = fp8(y / scale), y = rms_norm(x) * weight; q, x (rows, cols), scale (rows,), weight (cols,)."""
    ops.rms_norm_quant_fp8(q, scale, x, weight, eps)


__all__ = ["rms_norm_quant_fp8"]
