"""Runs INSIDE the sandbox, beside __main__.py: loads the emulated GPU, before torch."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from typing import Any


def load(libraries: Sequence[str], kernels: str, report: str, **options: int) -> Any:
    """Load `libraries` (`Runtime.load_order`) and return the CUDA runtime's. Call it before `import torch`.

    `kernels`: folder with the translated kernels and their index; `report`: file to which one JSON object per
    finding is appended (kind, kernel, block, thread, instruction, file, line, address, seed, message).
    Options: seed, steps (backward branches per launch), detect (0 or 1), cores, sms. Raises OSError.
    """
    os.environ["LIFTBENCH_EMULATED_KERNELS"] = kernels
    os.environ["LIFTBENCH_EMULATED_REPORT"] = report
    for name, value in options.items():
        os.environ[f"LIFTBENCH_EMULATED_{name.upper()}"] = str(value)
    loaded = [ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in libraries]
    return loaded[0]


def on_device(tensor: Any) -> Any:
    """The same memory as a CUDA tensor. Its bounds are those of its elements."""
    return sys.modules["torch"].ops.liftbench_emulated.cuda(tensor)


def raise_error(cudart: Any) -> None:
    """After each call of a project: raises the error that ended a kernel, which it may not have asked for."""
    code = cudart.cudaDeviceSynchronize()
    if code:
        cudart.cudaGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"CUDA error: {cudart.cudaGetErrorString(code).decode()}")
