"""The emulated CUDA runtime and driver, compiled once per version of their sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from platformdirs import user_cache_path

from harness.builder.toolchain import Toolchain
from harness.device.emulated.engine import sources_digest
from harness.device.emulated.runtime import CUDART, build_cuda
from harness.files import directory_atomically
from harness.locks import locked


@pytest.fixture(scope="session")
def cuda_libraries(toolchain: Toolchain) -> Path:
    """A folder with libcudart.so.13 and libcuda.so.1, without torch's side."""
    cuda = toolchain.cuda
    if cuda is None or cuda.include is None or cuda.cudart is None:
        pytest.skip("needs the CUDA headers")
    folder = user_cache_path("liftbench") / "emulated-tests" / sources_digest()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock"), "the emulated CUDA runtime, compiled by another test"):
        if not folder.is_dir():
            with directory_atomically(folder) as fresh:
                build_cuda(fresh, cuda.include, cuda.cudart, jobs=2)
    return folder


@pytest.fixture(scope="session")
def cudart(cuda_libraries: Path) -> Path:
    """libcudart.so.13."""
    return cuda_libraries / CUDART
