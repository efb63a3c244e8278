from ._ops import ops


def scale(out, x, *, alpha):
    ops.scale(out, x, alpha)


def shift(out, x, *, beta):
    ops.shift(out, x, beta)


def negate(out, x):
    ops.negate(out, x)


def fill(out, *, value):
    ops.fill(out, value)


def largest(x):
    return ops.largest(x)


__all__ = ["fill", "largest", "negate", "scale", "shift"]
