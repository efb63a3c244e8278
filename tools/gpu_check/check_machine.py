"""What the machine reports of its GPU, and what the board reaches in this session.

Reads only; no clock, mode or limit of the GPU is changed. Ceilings are the median of several runs of
back-to-back PyTorch calls on random data (zeros are faster).
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import torch

from harness.builder.toolchain import find_cuda
from sandboxes.docker.gpu import cdi_device, find_toolkit
from sandboxes.driver import driver_libraries
from sandboxes.gpu import device_nodes
from tools.gpu_check.bench import Bench, judging
from tools.gpu_check.plugin import gpu
from tools.gpu_check.record import Fact

COPY_BYTES: Final = 2 << 30
SIDE: Final = 8192
"""The best library matmul at 8192^3."""
_RUNS: Final = 7
_CALLS: Final = 10


def median_s(call: Callable[[], object], device: torch.device, calls: int = _CALLS) -> float:
    """Seconds a call, of `calls` in a row, median of several runs after one that warms up."""

    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    found = []
    for _ in range(_RUNS + 1):
        finish()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        finish()
        found.append((time.perf_counter() - start) / calls)
    return statistics.median(found[1:])


def measured(device: torch.device, copy_bytes: int = COPY_BYTES, side: int = SIDE) -> dict[str, Fact]:
    """`copy_gb_s` (read and written), `matmul_*_tflops` by dtype, `smallest_kernel_us`, on that device."""
    source = torch.randint(0, 256, (copy_bytes,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied_s = median_s(partial(target.copy_, source), device)
    facts: dict[str, Fact] = {"copy_gb_s": 2 * copy_bytes / copied_s / 1e9}
    for name in ("bfloat16", "float16", "float32"):
        dtype: torch.dtype = getattr(torch, name)
        a = torch.randn((side, side), device=device).to(dtype)
        b = torch.randn((side, side), device=device).to(dtype)
        out = torch.empty((side, side), device=device, dtype=dtype)
        took_s = median_s(partial(torch.mm, a, b, out=out), device)
        facts[f"matmul_{name}_tflops"] = 2 * side**3 / took_s / 1e12
    one = torch.zeros(1, device=device)
    facts["smallest_kernel_us"] = median_s(lambda: one.add_(1.0), device, calls=1000) * 1e6
    return facts


@gpu(
    "machine",
    "driver, GPU, clocks, device files and container toolkit are found by our own means",
    estimate_s=10.0,
    rank=0,
)
def test_machine(bench: Bench, facts: dict[str, Fact]) -> None:
    """Driver, clocks, device files, libraries, and what can give a container the GPU."""
    gpu, uuid = bench.slot.gpu, bench.slot.gpu.uuid
    state, memory = bench.nvml.state(uuid), bench.nvml.memory(uuid)
    nodes = device_nodes(bench.slot)
    toolkit, cdi, cuda = find_toolkit(), cdi_device(nodes), find_cuda(os.environ)
    watch = bench.watch_xids()
    if watch is not None:
        watch.close()
    facts |= {
        "kernel": platform.release(),
        "driver": bench.nvml.driver_version(),
        "nvcc": cuda.version if cuda else None,
        "capability": "{}.{}".format(*gpu.capability),
        "mig": gpu.mig,
        "memory_total_bytes": memory.total_bytes,
        "memory_used_bytes": memory.used_bytes,
        "processes": len(bench.nvml.processes(uuid)),
        "sm_mhz": state.sm_mhz,
        "memory_mhz": state.memory_mhz,
        "clocks_held_down_by": None if state.held_down_by is None else ", ".join(state.held_down_by) or "-",
        "xids_are_reported": watch is not None,
        "device_files": " ".join(map(str, nodes)),
        "driver_libraries": len(driver_libraries()),
        "container_toolkit": None if toolkit is None else f"{toolkit.version} ({toolkit.program})",
        "cdi": cdi,
    }


@gpu(
    "ceilings",
    "largest copy, best library matmul (float32 without TF32) and smallest kernel of this session",
    estimate_s=30.0,
    rank=2,
)
def test_ceilings(bench: Bench, facts: dict[str, Fact]) -> None:
    """The other denominator beside the datasheet."""
    with judging(bench) as judge:
        facts |= measured(judge.gpu.transport.device)
