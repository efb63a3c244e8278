"""Tensors over memory at an address.

Bytes, contiguous, no copy.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch


class _Bytes:
    """What PyTorch reads to make a CUDA tensor of foreign memory: version 3 of that interface."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "strides": None,
            "version": 3,
        }


def tensor_at(pointer: int, size: int, device: torch.device) -> torch.Tensor:
    """(size,) uint8 at `pointer`; on `cpu` the address is one of this process's memory.

    The memory must be mapped already: PyTorch asks the driver which device it lies on.
    """
    if device.type == "cpu":
        return torch.frombuffer((ctypes.c_char * size).from_address(pointer), dtype=torch.uint8)
    return torch.as_tensor(_Bytes(pointer, size), device=device)
