"""SiLU gate and row-wise FP8 quantisation, written into tensors that the caller owns."""

import torch

from ._ops import ops


def silu_mul_quant_fp8(scale: torch.Tensor, q: torch.Tensor, x: torch.Tensor) -> None:
    """scale = max |y| / 448 and q = y / scale, y = silu(x[:, :dim]) * x[:, dim:].

    Shapes: (tokens, 1) float32, (tokens, dim) float8_e4m3fn, (tokens, 2 * dim).
    """
    ops.silu_mul_quant_fp8(scale, q, x)


__all__ = ["silu_mul_quant_fp8"]
