"""The judge's kernels on the emulated GPU, by the classes that the judge uses on a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.device import known_kernel
from harness.device.emulated.kernels import build_kernels
from harness.device.emulated.runtime import CUDART, DRIVER
from harness.judge import device_kernels

_MODULES = [known_kernel._PTX, device_kernels._PTX]


@pytest.fixture(scope="module")
def translated(cuda_libraries: Path) -> Path:
    """The judge's kernels, translated."""
    folder = cuda_libraries / "judge"
    build_kernels([ptx.read_text() for ptx in _MODULES], folder, jobs=2)
    return folder


@pytest.mark.slow
def test_the_judges_kernels_are_right(cuda_libraries: Path, translated: Path, tmp_path: Path) -> None:
    """Their PTX runs on two cores, over memory that the emulated driver allocated."""
    report = tmp_path / "report"
    told = {"KERNELS": str(translated), "REPORT": str(report), "CORES": "2"}
    environment = os.environ | {f"LIFTBENCH_EMULATED_{name}": value for name, value in told.items()}
    command = [sys.executable, "-m", "tests.fakes.judge_kernels"]
    command += [str(cuda_libraries / name) for name in (CUDART, DRIVER)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "emulated sm_90\n"
    assert not report.exists(), report.read_text()
