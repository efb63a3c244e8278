"""Group norm and SiLU over (n, channels, positions), written into a tensor that the caller owns."""

import torch

from ._ops import ops


def group_norm_silu(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, eps: float, groups: int
) -> None:
    """out = silu(group_norm(x) * weight + bias); shapes (n, channels, positions), (channels,)."""
    ops.group_norm_silu(out, x, weight, bias, eps, groups)


__all__ = ["group_norm_silu"]
