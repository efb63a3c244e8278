"""How long builds take beside torch.utils.cpp_extension (`make bench`).

Every figure of a case comes from one run on one machine, with the same sources and the project's own flags.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")
pytest.importorskip("pytest_benchmark", reason="needs pytest-benchmark (pip install pytest-benchmark)")

from harness.builder.build import build
from harness.builder.toolchain import Toolchain, find_toolchain
from harness.files import write_files
from harness.records import Target
from harness.suite.catalogue import read_project
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool
from tests.fakes.projects import planned

HERE = Path(__file__).resolve().parent
SOURCES = {
    "stable ABI": HERE.parents[1] / "kernels_ref/l1/rms_norm",
    "torch/all.h": HERE / "published",
}
CASES: list[tuple[str, Target]] = [(name, target) for name in SOURCES for target in ("cpu", "cuda")]
Step = Literal["built", "repeated"]
STEPS: list[Step] = ["built", "repeated"]

# Compiles and links for real. Loading is not part of it: for sm_90 it needs a CUDA build of torch.
_EXTENSION = """
import json, os, sys
from torch.utils import cpp_extension
arguments = json.loads(sys.argv[1])
cpp_extension._import_module_from_library = lambda *_: None
cpp_extension.CUDA_HOME = os.environ.get("CUDA_HOME")  # a CPU-only torch does not look for it
cpp_extension.load(**arguments)
"""


class Lab:
    """One case: its project, one cache, and what was measured."""

    def __init__(self, name: str, target: Target, toolchain: Toolchain, folder: Path) -> None:
        self.target: Target = target
        self.label = f"{name}, {target}"
        self.toolchain = toolchain
        self.folder = folder
        self.project = read_project(SOURCES[name])
        self.layout = planned(self.project, target, toolchain)

    def measured(self, benchmark: Any, job: Callable[[], None]) -> None:
        """One round, because every job changes what is cached."""
        benchmark.group = f"building, {self.label}"
        benchmark.pedantic(job, rounds=1, iterations=1)

    def build(self, step: Step) -> None:
        """Ours."""
        built = build(
            self.project,
            self.target,
            sandbox=SandboxPool(LocalBackend()),
            toolchain=self.toolchain,
            cache=self.folder / "cache",
        )
        assert built.result.ok and built.result.cache_hit == (step == "repeated"), built.result.finding

    def extension(self) -> Callable[[], None]:
        """torch.utils.cpp_extension.load with an empty folder."""
        tree, empty = self.folder / "extension", self.folder / "extension/out"
        empty.mkdir(parents=True)
        write_files(self.layout.tree, tree)
        for name in ("c10_cuda", "torch_cuda", "cudart"):  # a CPU-only torch has none to link with
            stub = ["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(tree / f"lib{name}.so")]
            subprocess.run(stub, check=True)
        flags = ["-O3", "-DCPU_KERNEL" if self.target == "cpu" else "-DCUDA_KERNEL"]
        if self.layout.stable_abi is not None:
            flags += ["-DTORCH_TARGET_VERSION=0x20a000000000000", "-DUSE_CUDA=1"]
        cuda = self.toolchain.cuda
        includes = [tree / "source", *(d for h in self.toolchain.headers for d in h.include), tree / "stubs"]
        arguments = {
            "name": "extension",
            "sources": [str(tree / "source" / unit.source) for unit in self.layout.units.units],
            "extra_cflags": flags,
            "extra_cuda_cflags": [*flags, "--expt-relaxed-constexpr", "--expt-extended-lambda"],
            "extra_ldflags": [f"-L{tree}"],
            "extra_include_paths": [str(path) for path in includes],
            "build_directory": str(empty),
            "with_cuda": self.target == "cuda",
        }
        ninja = self.toolchain.ninja
        assert ninja is not None
        environment = os.environ | {
            "PATH": f"{ninja.parent}:{os.environ['PATH']}",
            "TORCH_CUDA_ARCH_LIST": "9.0",
            **({"CUDA_HOME": str(cuda.root)} if cuda is not None else {}),
        }

        def job() -> None:
            command = [sys.executable, "-c", _EXTENSION, json.dumps(arguments)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-3000:]
            assert list(empty.glob("*.so")), "nothing was linked"

        return job


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}".replace("/", "_"))
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """One case at a time."""
    name, target = request.param
    toolchain = find_toolchain()
    missing = toolchain.missing(target)
    if missing is not None:
        pytest.skip(missing)
    return Lab(name, target, toolchain, tmp_path_factory.mktemp("builds"))


def test_cpp_extension(benchmark: Any, lab: Lab) -> None:
    """What a user would do without us, from nothing."""
    lab.measured(benchmark, lab.extension())


@pytest.mark.parametrize("step", STEPS)
def test_ours(benchmark: Any, lab: Lab, step: Step) -> None:
    """From nothing, then the same project again."""
    lab.measured(benchmark, lambda: lab.build(step))
