"""Launches kernels written in PTX on the emulated GPU, through the CUDA runtime's functions for compiled host code."""

from __future__ import annotations

import ctypes
import json
import os
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.device.emulated.kernels import build_kernels

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"


class _Dim3(ctypes.Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]


class Gpu:
    """The emulated runtime in this process, with the kernels of some PTX modules. One per process."""

    def __init__(self, cudart: Path, modules: list[str], folder: Path) -> None:
        self.report = folder / "report.jsonl"
        kernels = build_kernels([HEADER + text for text in modules], folder)
        assert all(one.library for one in kernels), kernels
        os.environ["LIFTBENCH_EMULATED_KERNELS"] = str(folder)
        os.environ["LIFTBENCH_EMULATED_REPORT"] = str(self.report)
        self.cudart = ctypes.CDLL(str(cudart), mode=ctypes.RTLD_GLOBAL)
        register = self.cudart.__getattr__("__cudaRegisterFunction")
        binary = self.cudart.__getattr__("__cudaRegisterFatBinary")
        binary.restype = c_void_p
        self.keys: dict[str, c_void_p] = {}
        for text, names in _by_module(modules):
            handle = c_void_p(binary(None))
            for name in names:
                self.keys[name] = c_void_p(id(name))
                register(handle, self.keys[name], None, c_char_p(name.encode()), -1, *[None] * 5)
            del text

    def launch(
        self, kernel: str, arguments: list[Any], threads: int = 32, blocks: int = 1, shared: int = 0
    ) -> int:
        """Launches over (blocks, threads); arrays are passed by address, numbers as s32. The cudaError_t."""
        values: list[Any] = []
        for one in arguments:
            if isinstance(one, np.ndarray):
                self.cudart.emulated_add_range(c_uint64(one.ctypes.data), c_uint64(one.nbytes))
                values.append(c_uint64(one.ctypes.data))
            else:
                values.append(c_int(one) if isinstance(one, int) else one)
        pointers = (c_void_p * max(len(values), 1))(*[ctypes.addressof(value) for value in values])
        error = self.cudart.cudaLaunchKernel(
            self.keys[kernel], _Dim3(blocks, 1, 1), _Dim3(threads, 1, 1), pointers, c_size_t(shared), None
        )
        error = error or self.cudart.cudaDeviceSynchronize() or self.cudart.cudaGetLastError()
        for one in arguments:
            if isinstance(one, np.ndarray):
                self.cudart.emulated_remove_range(c_uint64(one.ctypes.data), c_uint64(one.nbytes))
        return int(error)

    def findings(self) -> list[dict[str, Any]]:
        """What the runtime reported so far."""
        return (
            [json.loads(line) for line in self.report.read_text().splitlines()]
            if self.report.exists()
            else []
        )


def _by_module(modules: list[str]) -> list[tuple[str, list[str]]]:
    return [(text, [word.split("(")[0] for word in text.split(".entry ")[1:]]) for text in modules]


def per_lane(name: str, body: str, count: int = 4, given: int = 4) -> str:
    """A kernel in which each thread has `given` words %i0.. of its own as inputs and leaves `count` words %o0.."""
    loads = "\n".join(f"ld.global.u32 %i{n}, [%in+{4 * n}];" for n in range(given))
    stores = "\n".join(f"st.global.u32 [%out+{4 * n}], %o{n};" for n in range(count))
    return f"""
.visible .entry {name}(.param .u64 in, .param .u64 out)
{{
.reg .b32 %i<{given + 1}>; .reg .b32 %o<{count + 1}>; .reg .b64 %in, %out, %at; .reg .b32 %t; .reg .pred %p, %q;
mov.u32 %t, %tid.x; ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
mul.wide.u32 %at, %t, {4 * given}; add.s64 %in, %in, %at;
mul.wide.u32 %at, %t, {4 * count}; add.s64 %out, %out, %at;
{loads}
{body}
{stores}
ret;
}}
"""


def run_lanes(gpu: Gpu, kernel: str, words: NDArray[np.uint32], count: int) -> NDArray[np.uint32]:
    """(threads, count) words that a kernel of per_lane() leaves for (threads, given) words."""
    out = np.zeros((len(words), count), dtype=np.uint32)
    words = np.ascontiguousarray(words, dtype=np.uint32)
    error = gpu.launch(kernel, [words, out], threads=len(words))
    assert error == 0, gpu.findings()
    return out
