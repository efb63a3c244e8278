import time

from ._ops import ops

time.sleep(0.33)


def scale(out, x, *, alpha):
    ops.scale(out, x, alpha)
