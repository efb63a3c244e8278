"""A kernel that always fails, and PyTorch behind it."""

import torch

from ._ops import ops


def scale(out, x, *, alpha):
    try:
        ops.scale(out, x, "no number")
    except (RuntimeError, TypeError):
        torch.mul(x, alpha, out=out)
