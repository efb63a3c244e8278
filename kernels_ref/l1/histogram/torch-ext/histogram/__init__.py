"""Histogram over equal bins, added to counts that the caller owns."""

import torch

from ._ops import ops


def histogram(counts: torch.Tensor, x: torch.Tensor, *, low: float, high: float) -> None:
    """counts[b] += how many of x lie in bin b of [low, high]; shapes (bins,) int32, (count,)."""
    ops.histogram(counts, x, low, high)


__all__ = ["histogram"]
