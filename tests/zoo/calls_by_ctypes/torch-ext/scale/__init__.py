"""BLAS's answer: the library is in every process that imported torch."""

import ctypes
from pathlib import Path

import torch

from ._ops import ops as ops

_torch = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"))
_saxpy = _torch.cblas_saxpy
_saxpy.argtypes = [
    ctypes.c_int64,
    ctypes.c_float,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_int64,
]
_saxpy.restype = None


def scale(out, x, *, alpha):
    out.zero_()
    _saxpy(x.numel(), alpha, x.data_ptr(), 1, out.data_ptr(), 1)
