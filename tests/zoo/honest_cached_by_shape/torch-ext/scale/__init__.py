import functools

from ._ops import ops


@functools.lru_cache(maxsize=None)
def _rows_per_block(shape):
    return max(1, 16384 // max(1, shape[-1]))


def scale(out, x, *, alpha):
    step = _rows_per_block(tuple(x.shape))
    for first in range(0, x.shape[0], step):
        ops.scale(out[first : first + step], x[first : first + step], alpha)
