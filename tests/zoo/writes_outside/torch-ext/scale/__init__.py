"""Right, and then writes one element past the end of `out`."""

import ctypes

from ._ops import ops


def scale(out, x, *, alpha):
    ops.scale(out, x, alpha)
    ctypes.memset(out.data_ptr() + out.numel() * out.element_size(), 0, out.element_size())
