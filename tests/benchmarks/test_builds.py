"""How long builds take beside torch.utils.cpp_extension (`make bench`).

Every figure of a case comes from one run on one machine, with the same sources and the same flags of
the project's own. CPU seconds of the compilers stand beside the wall clock: other load stretches mostly
the latter. The floor is the compiler alone on a file with the kernel's includes and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")
pytest.importorskip("pytest_benchmark", reason="needs pytest-benchmark (pip install pytest-benchmark)")

from harness.builder.build import build
from harness.builder.build_toml import read_build_toml
from harness.builder.commands import compile_argv
from harness.builder.layout import Layout, plan_layout
from harness.builder.toolchain import Toolchain, find_toolchain
from harness.records import Project, Target
from harness.suite.catalogue import read_project
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool

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
import json, os, resource, sys, time
from torch.utils import cpp_extension
arguments = json.loads(sys.argv[1])
cpp_extension._import_module_from_library = lambda *_: None
cpp_extension.CUDA_HOME = os.environ.get("CUDA_HOME")  # a CPU-only torch does not look for it
before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
cpp_extension.load(**arguments)
after = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
print(json.dumps([time.monotonic() - started, cpu_s]))
"""


class Lab:
    """One case: its project, one cache, and what was measured."""

    def __init__(self, name: str, target: Target, toolchain: Toolchain, folder: Path) -> None:
        self.target: Target = target
        self.label = f"{name}, {target}"
        self.toolchain = toolchain
        self.folder = folder
        self.project = read_project(SOURCES[name])
        self.layout = self._layout(self.project)
        self.figures: dict[str, tuple[float, float]] = {}
        """What -> (wall seconds, CPU seconds)."""

    def _layout(self, project: Project) -> Layout:
        toml = next(f.text for f in project.files if f.path == "build.toml")
        layout = plan_layout(project, read_build_toml(toml.encode()), self.target, self.toolchain)
        assert isinstance(layout, Layout), layout
        return layout

    def measured(self, what: str, job: Callable[[], tuple[float, float] | None]) -> None:
        """Run `job` and note what it took; a job may say itself what counts."""
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        own = job()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.figures[what] = own or (time.monotonic() - started, cpu_s)

    def build(self, step: Step) -> None:
        """Ours; what must come before is built first."""
        for earlier in STEPS[: STEPS.index(step)]:
            if earlier not in self.figures:
                self.build(earlier)

        def job() -> None:
            cache = self.folder / "cache"
            built = build(
                self.project,
                self.target,
                sandbox=SandboxPool(LocalBackend()),
                toolchain=self.toolchain,
                cache=cache,
            )
            assert built.result.ok and built.result.cache_hit == (step == "repeated"), built.result.finding

        self.measured(step, job)

    def extension(self) -> None:
        """torch.utils.cpp_extension.load with an empty folder."""
        tree, empty = self.folder / "extension", self.folder / "extension/out"
        empty.mkdir(parents=True)
        for file in self.layout.tree:
            (tree / file.path).parent.mkdir(parents=True, exist_ok=True)
            (tree / file.path).write_text(file.text)
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

        def job() -> tuple[float, float]:
            command = [sys.executable, "-c", _EXTENSION, json.dumps(arguments)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-3000:]
            wall_s, cpu_s = json.loads(done.stdout.splitlines()[-1])
            assert list(empty.glob("*.so")), "nothing was linked"
            return wall_s, cpu_s

        self.measured("cpp_extension", job)

    def floor(self) -> None:
        """The compiler alone on the kernel's includes."""
        tree = self.folder / "floor"
        for file in self.layout.tree:
            (tree / file.path).parent.mkdir(parents=True, exist_ok=True)
            (tree / file.path).write_text(file.text)
        unit = self.layout.units.units[-1]
        source = tree / "source" / unit.source
        source.write_text("".join(re.findall(r"^#include <.*\n", source.read_text(), re.M)))
        argv = compile_argv(unit, self.layout, self.toolchain)
        (tree / f"obj/{unit.source}").mkdir(parents=True)

        def job() -> None:
            subprocess.run(argv, cwd=tree, check=True, capture_output=True)

        self.measured("floor", job)

    def lines(self) -> Iterator[str]:
        """The table of this case."""
        yield f"{self.label:24} {'wall s':>8} {'CPU s':>8}   of cpp_extension (CPU s)"
        whole = self.figures.get("cpp_extension")
        for what, (wall_s, cpu_s) in self.figures.items():
            ratio = f"{cpu_s / whole[1]:.0%}" if whole else ""
            yield f"  {what:22} {wall_s:8.1f} {cpu_s:8.1f}   {ratio}"


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]}".replace("/", "_"))
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One case at a time; its table is printed when it is done."""
    name, target = request.param
    toolchain = find_toolchain()
    missing = toolchain.missing(target)
    if missing is not None:
        pytest.skip(missing)
    made = Lab(name, target, toolchain, tmp_path_factory.mktemp("builds"))
    yield made
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    if made.figures and capture is not None:
        with capture.global_and_fixture_disabled():
            print("", *made.lines(), sep="\n")


def once(benchmark: Any, lab: Lab, what: str, job: Callable[[], None]) -> None:
    """One round: every job changes what is cached."""
    benchmark.group = f"building, {lab.label}"
    benchmark.pedantic(job, rounds=1, iterations=1)
    benchmark.extra_info["wall_s"], benchmark.extra_info["cpu_s"] = lab.figures[what]


def test_cpp_extension(benchmark: Any, lab: Lab) -> None:
    """What a user would do without us, from nothing."""
    once(benchmark, lab, "cpp_extension", lab.extension)


@pytest.mark.parametrize("step", STEPS)
def test_ours(benchmark: Any, lab: Lab, step: Step) -> None:
    """From nothing, then the same project again."""
    once(benchmark, lab, step, lambda: lab.build(step))


def test_floor(benchmark: Any, lab: Lab) -> None:
    """What no cache can save when the kernel is new."""
    once(benchmark, lab, "floor", lab.floor)
