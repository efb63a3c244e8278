"""What the machine reports of itself and its GPU, and what the board reaches in this session.

Reads only; no clock, mode or limit of the GPU is changed. Ceilings are medians of back-to-back PyTorch calls
on random data (zeros are faster).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import torch

from harness.builder.compiler_slots import balloon_bytes, counted_memory
from harness.builder.toolchain import find_cuda
from harness.device.machine import judge_and_worker_cpus, threads_of_core
from harness.judge.physical_limits import BOARDS, Board, board_of
from harness.judge.shared_memory import ARENA_SHARE, TorchCache
from sandboxes.docker.gpu import cdi_device, find_toolkit
from sandboxes.driver import driver_environment, driver_libraries, loader_cache
from sandboxes.gpu import device_nodes
from sandboxes.outside import blocked_ancestor
from tests.gpu.bench import Bench, judging
from tools.gpu_results import Fact

_PROGRAMS: Final = (
    "nvcc", "g++", "make", "ninja", "git", "bwrap", "docker", "nvidia-smi", "nvidia-ctk", "compute-sanitizer",
    "cuobjdump",
)  # fmt: skip
_VARIABLES: Final = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "CUDA_MPS_PIPE_DIRECTORY")
_TOUCHED_BYTES: Final = 2 << 30
_COPY_BYTES, _SIDE = 2 << 30, 8192
_CALLS: Final = 10
_DTYPES: Final = ("bfloat16", "float16", "float32", "float8_e4m3fn")


@pytest.mark.gpu(estimate_s=20.0, rank=0)
def test_facts(gpu: Bench, facts: dict[str, Fact]) -> None:
    """Libraries, device files, programs, memory, security modules and compute mode of this machine."""
    libraries = [line.strip() for line in loader_cache().splitlines() if "libcuda.so" in line]
    libraries += [str(path) for path in driver_libraries() if path.name.startswith("libcuda.so")]
    modules = Path("/sys/kernel/security/lsm")
    nodes = [f"{path} {path.stat().st_mode:o}" for path in sorted(Path("/dev").glob("nvidia*"))]
    facts |= {
        "kernel": platform.release(),
        "glibc": platform.libc_ver()[1],
        "cores": len(os.sched_getaffinity(0)),
        "loader_libcuda": "; ".join(libraries) or "-",
        "nodes": "; ".join(nodes) or "-",
        "uvm_in_proc": Path("/proc/driver/nvidia-uvm").exists(),
        "programs": " ".join(name for name in _PROGRAMS if shutil.which(name)),
        "no_programs": " ".join(name for name in _PROGRAMS if not shutil.which(name)),
        "variables": " ".join(f"{name}={os.environ.get(name, '-')}" for name in _VARIABLES),
        "security_modules": modules.read_text() if modules.exists() else "-",
        "driver_environment": str(driver_environment(driver_libraries())),
        "memory_counted": counted_memory(),
        "balloon_mib": balloon_bytes() >> 20,
        "available_mib": _available_mib(),
        "closed_folder": str(blocked_ancestor(Path(sys.prefix)) or "-"),
        "capabilities": Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0],
    }
    # Some machines are given their memory only as it is touched.
    touched = torch.ones(_TOUCHED_BYTES // (64 if gpu.emulated else 1), dtype=torch.uint8)
    del touched
    facts["available_mib_after_touching"] = _available_mib()
    smi = shutil.which("nvidia-smi")
    asked = [smi, "-q", "-d", "COMPUTE"] if smi else ["echo", "no nvidia-smi"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    facts["compute_mode"] = " ".join(done.stdout.split())[-400:]


def _available_mib() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable"))


@pytest.mark.gpu(estimate_s=10.0, rank=0)
def test_machine(gpu: Bench, facts: dict[str, Fact]) -> None:
    """Driver, GPU, clocks, device files and container toolkit are found by our own means."""
    board, uuid = gpu.slot.gpu, gpu.slot.gpu.uuid
    state, memory = gpu.nvml.state(uuid), gpu.nvml.memory(uuid)
    nodes = [] if gpu.emulated else device_nodes(gpu.slot)
    toolkit, cdi, cuda = find_toolkit(), cdi_device(nodes), find_cuda(os.environ)
    watch = gpu.watch_xids()
    if watch is not None:
        watch.close()
    facts |= {
        "driver": gpu.nvml.driver_version(),
        "nvcc": cuda.version if cuda else None,
        "capability": "{}.{}".format(*board.capability),
        "mig": board.mig,
        "memory_total_bytes": memory.total_bytes,
        "memory_used_bytes": memory.used_bytes,
        "processes": len(gpu.nvml.processes(uuid)),
        "sm_mhz": state.sm_mhz,
        "memory_mhz": state.memory_mhz,
        "clocks_held_down_by": None if state.held_down_by is None else ", ".join(state.held_down_by) or "-",
        "xids_are_reported": watch is not None,
        "device_files": " ".join(map(str, nodes)),
        "driver_libraries": len(driver_libraries()),
        "container_toolkit": None if toolkit is None else f"{toolkit.version} ({toolkit.program})",
        "cdi": cdi,
    }
    assert memory.total_bytes > 0


@pytest.mark.gpu(estimate_s=1.0, rank=0)
def test_judge_cpu(gpu: Bench, facts: dict[str, Fact]) -> None:
    """Judge and worker have two physical cores where there are; which CPUs serve the GPU's interrupts."""
    judges, workers = judge_and_worker_cpus()
    if judges is None or workers is None:
        pytest.skip("one CPU only")
    (judge,), (worker,) = judges, workers
    beside_judge, beside_worker = threads_of_core(judge), threads_of_core(worker)
    lines = Path("/proc/interrupts").read_text().splitlines()
    counts = [line.split()[1 : 1 + len(lines[0].split())] for line in lines[1:] if "nvidia" in line]
    served = {lines[0].split()[at] for one in counts for at, count in enumerate(one) if count != "0"}
    facts |= {
        "judge_cpu": judge,
        "judge_core": ",".join(map(str, sorted(beside_judge))),
        "worker_cpu": worker,
        "worker_core": ",".join(map(str, sorted(beside_worker))),
        "interrupts_served_by": " ".join(sorted(served)) or "-",
    }
    assert judge not in beside_worker or os.sched_getaffinity(0) <= beside_worker


@pytest.mark.gpu(estimate_s=15.0, rank=6)
def test_cache(gpu: Bench, facts: dict[str, Fact]) -> None:
    """PyTorch's unused device memory is given back before a reveal, and an arena's memory can be had."""
    with judging(gpu) as judge:
        if gpu.emulated:
            pytest.skip("PyTorch keeps no device memory here")
        transport, device = judge.gpu.transport, judge.gpu.transport.device
        total_bytes, cache = gpu.nvml.memory(gpu.slot.uuid).total_bytes, TorchCache()
        torch.empty(total_bytes // 8, dtype=torch.uint8, device=device)  # dropped at once, and kept unused
        facts["unused_mib_before"] = cache.unused_bytes(device) >> 20
        transport.before_reveal()
        facts["unused_mib_after"] = unused = cache.unused_bytes(device) >> 20
        torch.empty(total_bytes * 6 // 10, dtype=torch.uint8, device=device)
        began = time.monotonic()
        with closing(transport.allocate(int(ARENA_SHARE * total_bytes))):
            facts["allocated_s"] = round(time.monotonic() - began, 3)
    assert unused < 64


def calls(
    what: str, device: torch.device, copy_bytes: int, side: int
) -> tuple[Callable[[], object], str, float]:
    """One call, the name of its figure, and the work of a call over that figure's unit and a second."""
    if what == "copy":
        source = torch.randint(0, 256, (copy_bytes,), dtype=torch.uint8, device=device)
        return partial(torch.empty_like(source).copy_, source), "copy_gb_s", 2 * copy_bytes / 1e9
    if what == "smallest_kernel":
        one = torch.zeros(1, device=device)
        return partial(one.add_, 1.0), "smallest_kernel_us", 1e6
    dtype: torch.dtype = getattr(torch, what.removeprefix("matmul_"))
    a, b, out = (torch.randn((side, side), device=device).to(dtype) for _ in range(3))
    call: Callable[[], object] = partial(torch.mm, a, b, out=out)
    if dtype.itemsize == 1:
        unscaled, to = torch.ones((), device=device), torch.bfloat16
        call = partial(torch._scaled_mm, a, b.t(), unscaled, unscaled, out_dtype=to, use_fast_accum=True)
    return call, f"{what}_tflops", 2 * side**3 / 1e12


def most(what: str, board: Board | None) -> float | None:
    """What the judge says that no honest figure of this board exceeds; None where it says nothing."""
    if board is None or what == "smallest_kernel":
        return None
    peak = board.peak(what.removeprefix("matmul_"), highest=True)
    return board.bandwidth_gb_s if peak is None else peak / 1e12


@pytest.mark.gpu(estimate_s=12.0)
@pytest.mark.parametrize(
    "what",
    [
        pytest.param("copy", marks=pytest.mark.gpu(rank=3)),
        *(
            pytest.param(what, marks=pytest.mark.gpu(rank=5))
            for what in (*(f"matmul_{name}" for name in _DTYPES), "smallest_kernel")
        ),
    ],
)
def test_ceilings(what: str, gpu: Bench, facts: dict[str, Fact], benchmark: Any) -> None:
    """Copy, library matmul at 8192^3 (float32 without TF32) within the judge's limits; smallest kernel."""
    with judging(gpu) as judge:
        device = judge.gpu.transport.device
        call, name, work = calls(what, device, *((1 << 16, 8) if gpu.emulated else (_COPY_BYTES, _SIDE)))

        def several() -> None:
            for _ in range(_CALLS):
                call()
            judge.gpu.transport.wait()

        benchmark.pedantic(several, rounds=7, warmup_rounds=2)
    if benchmark.stats is not None:
        call_s = benchmark.stats.stats.median / _CALLS
        facts[name] = figure = call_s * work if name.endswith("_us") else work / call_s
        board = BOARDS["NVIDIA H200"] if gpu.emulated else board_of(gpu.slot.gpu.name, gpu.slot.uuid)
        facts["limit"] = limit = most(what, board)
        assert figure > 0 and (limit is None or figure <= limit)
