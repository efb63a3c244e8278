"""The emulated CUDA runtime, compiled once per version of its sources."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from harness.builder.toolchain import Toolchain
from harness.device.emulated.kernels import HERE

_SOURCES = ("scheduler", "memory", "barriers", "copies", "wgmma", "report", "modules", "cudart")
_FLAGS = (
    "-std=c++20",
    "-O1",
    "-march=native",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fPIC",
    "-pthread",
)


@pytest.fixture(scope="session")
def cudart(toolchain: Toolchain) -> Path:
    """libcudart.so.13 without torch's part."""
    if toolchain.cuda is None or toolchain.cuda.include is None:
        pytest.skip("needs the CUDA headers")
    texts = [path.read_bytes() for path in sorted([*HERE.glob("*.cpp"), *HERE.glob("*.h")])]
    folder = (
        user_cache_path("liftbench") / "emulated-tests" / hashlib.sha256(b"\0".join(texts)).hexdigest()[:24]
    )
    library = folder / "libcudart.so.13"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        making = folder / f"making.{os.getpid()}"
        sources = [str(HERE / f"{name}.cpp") for name in _SOURCES]
        command = ["g++", *_FLAGS, f"-I{toolchain.cuda.include}", "-shared", *sources, "-o", str(making)]
        subprocess.run(command, check=True)
        making.rename(library)
    return library
