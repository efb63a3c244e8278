"""The judge's known kernel on the emulated GPU, by the classes that the judge uses on a real one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from harness.builder.toolchain import Toolchain
from harness.device import known_kernel
from harness.device.emulated.kernels import build_kernels
from harness.device.emulated.runtime import CUDART, DRIVER, build_cuda

_PTX = Path(known_kernel.__file__).with_name("known.ptx")
_RUN = """
import sys
from harness.worker import emulated
runtime, driver, kernels, report = sys.argv[1:]
emulated.load([runtime, driver], kernels, report, cores=2)
from harness.device.cuda import Device, Driver
from harness.device.known_kernel import KnownKernel
device = Device(Driver(driver))
kernel = KnownKernel(device, count=1 << 12, rounds=64)
assert kernel.run().ok
mapping = device.map(1 << 20)
device.fill(mapping.pointer, 1, mapping.size)
device.unmap(mapping)
kernel.close()
device.close()
print(device.name)
"""


@pytest.fixture(scope="module")
def libraries(toolchain: Toolchain) -> Path:
    """The emulated CUDA runtime and driver, and beside them the known kernel."""
    if toolchain.cuda is None or toolchain.cuda.cudart is None:
        pytest.skip("needs the CUDA toolkit")
    folder = build_cuda(user_cache_path("liftbench") / "emulated", toolchain.cuda)
    build_kernels([_PTX.read_text()], folder / "known")
    return folder


def test_the_known_kernel_is_right(libraries: Path, tmp_path: Path) -> None:
    """Its PTX runs on two cores, over memory that the emulated driver allocated."""
    files = [libraries / CUDART, libraries / DRIVER, libraries / "known", tmp_path / "report"]
    command = [sys.executable, "-c", _RUN, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "emulated sm_90\n"
    assert not files[-1].exists()
