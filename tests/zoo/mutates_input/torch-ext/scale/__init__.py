"""Right, but it uses its input as scratch space."""

from ._ops import ops


def scale(out, x, *, alpha):
    ops.scale(out, x, alpha)
    x.view(-1)[0] = 0.0
