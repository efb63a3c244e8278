"""Layer norm modulated by a scale and a shift per sample, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def adaln_modulate(
    out: torch.Tensor, x: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor, *, eps: float
) -> None:
    """out = layer_norm(x) * (1 + scale) + shift; shapes (batch, tokens, cols), (batch, cols)."""
    ops.adaln_modulate(out, x, shift, scale, eps)


__all__ = ["adaln_modulate"]
