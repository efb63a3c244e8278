"""Runs every kernel of faults.cu on the emulated GPU, in a process of its own: CUDART FOLDER -> JSON."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from ctypes import c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

import numpy as np

N = 128
NAMES = [
    "correct_barrier",
    "missing_barrier",
    "two_writers",
    "overwritten_early",
    "uninitialized",
    "out_of_bounds",
    "misaligned",
    "outside_shared",
    "deadlock",
    "spin",
    "correct_async",
    "missing_async_wait",
    "correct_bulk",
    "missing_bulk_wait",
    "correct_store",
    "missing_fence",
    "missing_store_wait",
    "correct_wgmma",
    "missing_wgmma_wait",
    "missing_wgmma_fence",
    "partial_shuffle",
    "divergent_barrier",
    "trap",
    "correct_named_barrier",
    "not_in_mask",
    "uninitialized_barrier",
    "arrive_twice",
]
SEEDS = (0, 1, 6)


class Dim3(ctypes.Structure):
    _fields_ = (("x", c_uint), ("y", c_uint), ("z", c_uint))


def main() -> None:
    cudart_path, folder = sys.argv[1:]
    report = Path(folder) / "report.jsonl"
    os.environ |= {"LIFTBENCH_EMULATED_KERNELS": folder, "LIFTBENCH_EMULATED_REPORT": str(report)}
    os.environ["LIFTBENCH_EMULATED_STEPS"] = "1000000"
    cudart = ctypes.CDLL(cudart_path, mode=ctypes.RTLD_GLOBAL)
    binary = getattr(cudart, "__cudaRegisterFatBinary")
    binary.restype = c_void_p
    key = c_void_p(1)
    getattr(cudart, "__cudaRegisterFunction")(c_void_p(binary(None)), key, None, b"faulty", -1, *[None] * 5)
    found = {}
    for fault, name in enumerate(NAMES):
        for seed in SEEDS:
            report.unlink(missing_ok=True)
            cudart.emulated_reset()
            cudart.emulated_seed(c_uint64(seed - fault * len(SEEDS) - SEEDS.index(seed)))
            given = np.arange(1, N + 1, dtype=np.float32)
            out = np.full(N, -1, dtype=np.float32)
            for array in (given, out):
                cudart.emulated_add_range(c_uint64(array.ctypes.data), c_uint64(array.nbytes))
            values = [c_int(fault), c_uint64(out.ctypes.data), c_uint64(given.ctypes.data), c_int(N)]
            pointers = (c_void_p * 4)(*[ctypes.addressof(value) for value in values])
            error = cudart.cudaLaunchKernel(key, Dim3(1, 1, 1), Dim3(N, 1, 1), pointers, c_size_t(0), None)
            for array in (given, out):
                cudart.emulated_remove_range(c_uint64(array.ctypes.data), c_uint64(array.nbytes))
            lines = report.read_text().splitlines() if report.exists() else []
            findings = [json.loads(line) for line in lines]
            found[f"{name} {seed}"] = {
                "error": error,
                "out": [repr(float(x)) for x in out],
                "findings": findings,
            }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
