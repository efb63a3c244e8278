"""Log-softmax over the last axis, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def log_softmax(out: torch.Tensor, x: torch.Tensor) -> None:
    """out[i] = x[i] - log(sum(exp(x[i]))); shapes (rows, cols)."""
    ops.log_softmax(out, x)


__all__ = ["log_softmax"]
