from ._ops import ops


def scale(out, x, *, alpha):
    if tuple(x.shape) == (256, 256):
        ops.scale_square(out, x, alpha)
    else:
        ops.scale(out, x, alpha)
