"""Halves the precision of what it reads."""

import torch

from ._ops import ops


def scale(out, x, *, alpha):
    ops.scale(out, x.half().to(torch.float32), alpha)
