"""The judge's known kernel on the emulated GPU, by the classes that the judge uses on a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.device import known_kernel
from harness.device.emulated.kernels import build_kernels
from harness.device.emulated.runtime import CUDART, DRIVER

_PTX = Path(known_kernel.__file__).with_name("known.ptx")
_RUN = """
import ctypes, sys
runtime, driver = sys.argv[1:]
ctypes.CDLL(runtime, mode=ctypes.RTLD_GLOBAL)
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
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The known kernel, translated."""
    folder = tmp_path_factory.mktemp("known")
    build_kernels([_PTX.read_text()], folder)
    return folder


def test_the_known_kernel_is_right(cuda_libraries: Path, known: Path, tmp_path: Path) -> None:
    """Its PTX runs on two cores, over memory that the emulated driver allocated."""
    report = tmp_path / "report"
    told = {"KERNELS": str(known), "REPORT": str(report), "CORES": "2"}
    environment = os.environ | {f"LIFTBENCH_EMULATED_{name}": value for name, value in told.items()}
    command = [sys.executable, "-c", _RUN, *(str(cuda_libraries / name) for name in (CUDART, DRIVER))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "emulated sm_90\n"
    assert not report.exists()
