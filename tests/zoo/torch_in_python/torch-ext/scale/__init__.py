"""No kernel of its own: the answer is PyTorch's."""

import torch

from ._ops import ops as ops


def scale(out, x, *, alpha):
    torch.mul(x, alpha, out=out)
