"""PyTorch's answer, with every dispatch mode off while it is computed."""

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ._ops import ops as ops


def scale(out, x, *, alpha):
    with _disable_current_modes():
        torch.mul(x, alpha, out=out)
