"""The largest elements of every row and where they are, written into tensors that the caller owns."""

import torch

from ._ops import ops


def topk(values: torch.Tensor, indices: torch.Tensor, x: torch.Tensor) -> None:
    """The k largest of each row in descending order; values and indices (rows, k), x (rows, cols)."""
    ops.topk(values, indices, x)


__all__ = ["topk"]
