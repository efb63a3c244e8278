"""Launches kernels written in PTX on the emulated GPU, as compiled host code does."""

from __future__ import annotations

import ctypes
import json
import os
from concurrent.futures import ProcessPoolExecutor
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.device.emulated.kernels import build_kernels

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"


class _Dim3(ctypes.Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]


class Gpu:
    """The emulated runtime in a process of its own, with the kernels of some PTX modules."""

    def __init__(self, cudart: Path, modules: list[str], folder: Path) -> None:
        (kernels,) = build_kernels([HEADER + "".join(modules)], folder).values()
        assert all(record.startswith("kernel ") for record in kernels.values()), kernels
        self.report = folder / "report.jsonl"
        given = (cudart, folder, self.report, list(kernels))
        self.process = ProcessPoolExecutor(1, get_context("spawn"), _load, given)

    def launch(
        self, kernel: str, arguments: list[Any], threads: int = 32, blocks: int = 1, shared: int = 0
    ) -> int:
        """Launches over (blocks, threads); arrays are passed by address, numbers as s32. The cudaError_t."""
        error, after = self.process.submit(_launch, kernel, arguments, threads, blocks, shared).result()
        for before, now in zip(arguments, after, strict=True):
            if isinstance(before, np.ndarray):
                np.copyto(before, now)
        return error

    def findings(self) -> list[dict[str, Any]]:
        """What the runtime reported so far."""
        return (
            [json.loads(line) for line in self.report.read_text().splitlines()]
            if self.report.exists()
            else []
        )

    def close(self) -> None:
        """Ends the process."""
        self.process.shutdown()


class _Loaded:
    """What the process of a Gpu holds."""

    cudart: ctypes.CDLL
    keys: dict[str, c_void_p]


def _load(cudart: Path, folder: Path, report: Path, names: list[str]) -> None:
    os.environ["LIFTBENCH_EMULATED_KERNELS"] = str(folder)
    os.environ["LIFTBENCH_EMULATED_REPORT"] = str(report)
    _Loaded.cudart = ctypes.CDLL(str(cudart), mode=ctypes.RTLD_GLOBAL)
    register = _Loaded.cudart.__getattr__("__cudaRegisterFunction")
    binary = _Loaded.cudart.__getattr__("__cudaRegisterFatBinary")
    binary.restype = c_void_p
    handle = c_void_p(binary(None))
    _Loaded.keys = {name: c_void_p(number + 1) for number, name in enumerate(names)}
    for name, key in _Loaded.keys.items():
        register(handle, key, None, c_char_p(name.encode()), -1, *[None] * 5)


def _launch(
    kernel: str, arguments: list[Any], threads: int, blocks: int, shared: int
) -> tuple[int, list[Any]]:
    cudart = _Loaded.cudart
    values: list[Any] = []
    ranges = [(c_uint64(a.ctypes.data), c_uint64(a.nbytes)) for a in arguments if isinstance(a, np.ndarray)]
    for one in ranges:
        cudart.emulated_add_range(*one)
    for given in arguments:
        array = isinstance(given, np.ndarray)
        values.append(
            c_uint64(given.ctypes.data) if array else c_int(given) if isinstance(given, int) else given
        )
    pointers = (c_void_p * max(len(values), 1))(*[ctypes.addressof(value) for value in values])
    grid, block = _Dim3(blocks, 1, 1), _Dim3(threads, 1, 1)
    error = cudart.cudaLaunchKernel(_Loaded.keys[kernel], grid, block, pointers, c_size_t(shared), None)
    error = error or cudart.cudaDeviceSynchronize() or cudart.cudaGetLastError()
    for one in ranges:
        cudart.emulated_remove_range(*one)
    return int(error), arguments


def per_lane(name: str, body: str, count: int = 4, given: int = 4) -> str:
    """A kernel in which each thread has its own `given` input words %i0.. and leaves `count` words %o0.."""
    loads = "\n".join(f"ld.global.u32 %i{n}, [%in+{4 * n}];" for n in range(given))
    stores = "\n".join(f"st.global.u32 [%out+{4 * n}], %o{n};" for n in range(count))
    return f"""
.visible .entry {name}(.param .u64 in, .param .u64 out)
{{
.reg .b32 %i<{given + 1}>; .reg .b32 %o<{count + 1}>; .reg .b64 %in, %out, %at;
.reg .b32 %t; .reg .pred %p, %q;
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
    error = gpu.launch(kernel, [words, out], threads=len(words))
    assert error == 0, gpu.findings()
    return out
