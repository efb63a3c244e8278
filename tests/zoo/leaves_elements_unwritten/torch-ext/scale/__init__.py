"""Writes all rows but the last."""

from ._ops import ops


def scale(out, x, *, alpha):
    ops.scale(out[:-1], x[:-1], alpha)
