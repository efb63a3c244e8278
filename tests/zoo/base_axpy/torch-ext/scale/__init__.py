from ._ops import ops


def axpy(y, x, *, alpha):
    ops.axpy(y, x, alpha)
