"""Sum over the rows of a matrix, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def column_sum(out: torch.Tensor, x: torch.Tensor) -> None:
    """out[j] = sum of x[i, j] over i, in float32; out (cols,), x (rows, cols)."""
    ops.column_sum(out, x)


__all__ = ["column_sum"]
