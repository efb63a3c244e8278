"""Operands of the calls: made on the host, seen by the emulated GPU as its own."""

from __future__ import annotations

import torch

Tensor = torch.Tensor
F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
Call = tuple[str, list[Tensor], list[Tensor], float]
"""A label, the project's outputs, those of PyTorch (float64 or integers), and the error that float32 and
float64 are allowed, as a multiple of their bounds."""


def gpu(x: Tensor) -> Tensor:
    """The same elements on the emulated GPU."""
    made: Tensor = torch.ops.liftbench_emulated.cuda(x)
    return made


def normal(*shape: int, dtype: torch.dtype = F32) -> Tensor:
    """Standard normal values on the host."""
    return torch.randn(*shape).to(dtype)


def poison(*shape: int, dtype: torch.dtype = F32) -> Tensor:
    """An output of NaN on the emulated GPU."""
    return gpu(torch.full(shape, torch.nan, dtype=dtype))
