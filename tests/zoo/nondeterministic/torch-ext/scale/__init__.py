"""Within tolerance, but no two calls agree to the last bit."""

import torch

from ._ops import ops


def scale(out, x, *, alpha):
    ops.scale(out, x, alpha)
    out.mul_(1.0 + 4e-7 * torch.rand_like(out))
