import torch

from ._ops import ops


def scale(out, x, *, alpha):
    temporary = torch.empty_like(x)
    ops.scale(temporary, x, alpha)
    out.copy_(temporary)
