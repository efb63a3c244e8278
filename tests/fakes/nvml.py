"""A compiled stand-in for NVIDIA's management library (nvml.c), and the files that say how its GPUs are."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pynvml
import pytest

WHOLE = "GPU-00000000-aaaa-0000-0000-000000000000"
SLICED = "GPU-11111111-bbbb-1111-1111-111111111111"
OLD = "GPU-22222222-cccc-2222-2222-222222222222"
SLICES = ("MIG-33333333-dddd-3333-3333-333333333333", "MIG-44444444-eeee-4444-4444-444444444444")


def compile_nvml(folder: Path, *flags: str) -> Path:
    """Build the fake library in `folder`."""
    library = folder / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml.c")
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *flags, "-o", library, source]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


@cache
def _loaded() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        return ctypes.CDLL(str(compile_nvml(Path(folder))))


def install_fake_nvml(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Has pynvml call the compiled fake, whose GPUs are described by files of `folder`. Skips without gcc."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    monkeypatch.setenv("LIFTBENCH_FAKE_NVML", str(folder))
    monkeypatch.setattr(pynvml, "nvmlLib", _loaded())
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
