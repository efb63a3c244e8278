"""Right but for the very last element."""

from ._ops import ops


def scale(out, x, *, alpha):
    ops.scale(out, x, alpha)
    out.view(-1)[-1] *= 1.001
