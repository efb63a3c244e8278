from ._ops import ops


def _fast(out, x, *, alpha):
    ops.scale(out, x, alpha)


def scale(out, x, *, alpha):
    global scale
    scale = _fast
    _fast(out, x, alpha=alpha)
