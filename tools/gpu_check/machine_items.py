"""What the machine says of its GPU, before anything runs on it.

Reads only; no clock, mode or limit of the GPU is changed.
"""

from __future__ import annotations

import os
import platform

from harness.builder.toolchain import find_cuda
from harness.records.gpu_check import Fact
from sandboxes.docker.gpu import cdi_device, find_toolkit
from sandboxes.gpu import device_nodes, driver_libraries
from tools.gpu_check.item import Bench, Item


def machine(bench: Bench) -> dict[str, Fact]:
    """Driver, clocks, device files, libraries, and what can hand the GPU to a container."""
    gpu, uuid = bench.slot.gpu, bench.slot.gpu.uuid
    clocks, memory = bench.nvml.clocks(uuid), bench.nvml.memory(uuid)
    nodes = device_nodes(bench.slot)
    toolkit, cdi, cuda = find_toolkit(), cdi_device(nodes), find_cuda(os.environ)
    watch = bench.watch_xids()
    if watch is not None:
        watch.close()
    return {
        "kernel": platform.release(),
        "driver": bench.nvml.driver_version(),
        "cuda_of_driver": bench.nvml.cuda_version(),
        "nvcc": cuda.version if cuda else None,
        "capability": "{}.{}".format(*gpu.capability),
        "mig": gpu.mig,
        "memory_total_bytes": memory.total_bytes,
        "memory_used_bytes": memory.used_bytes,
        "processes": len(bench.nvml.processes(uuid)),
        "sm_mhz": clocks.sm_mhz,
        "max_sm_mhz": clocks.max_sm_mhz,
        "memory_mhz": clocks.memory_mhz,
        "max_memory_mhz": clocks.max_memory_mhz,
        "clocks_held_down_by": None if clocks.held_down_by is None else ", ".join(clocks.held_down_by) or "-",
        "xids_are_reported": watch is not None,
        "device_files": " ".join(map(str, nodes)),
        "driver_libraries": len(driver_libraries()),
        "container_toolkit": None if toolkit is None else f"{toolkit.version} ({toolkit.told_by})",
        "cdi": None if cdi is None else cdi.name,
    }


MACHINE = Item(
    name="machine",
    proves="driver, GPU, clocks, device files and container toolkit are found by our own means",
    estimate_s=10.0,
    measure=machine,
)
