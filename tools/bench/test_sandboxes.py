"""What a sandbox costs a job, beside the same job as a bare process (`make bench`).

A stage is all that a caller waits for: start, the job's own end, and giving everything back. `build`
jobs start cold; `run` jobs import torch first, and can be started ahead (`warm`). The job itself ends at
once, so that what is left is the sandbox's.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")
pytest.importorskip("pytest_benchmark", reason="needs pytest-benchmark (pip install pytest-benchmark)")

from harness.builder.toolchain import Toolchain, find_toolchain, toolchain_of_image
from harness.errors import SandboxError
from sandboxes.job import Job, Limits
from sandboxes.pool import SandboxPool
from sandboxes.registry import BACKENDS, open_sandbox

_LIMITS = Limits(wall_s=120.0, memory_bytes=4 << 30)
_ENDS_AT_ONCE = "import os\nos._exit(0)\n"


@pytest.fixture(scope="module", params=sorted(BACKENDS))
def sandbox(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    """Every backend that this machine has."""
    try:
        made = open_sandbox(request.param)
    except SandboxError as error:
        pytest.skip(f"{request.param}: {error}")
    yield made
    made.close()


@pytest.fixture(scope="module")
def toolchain(sandbox: SandboxPool, tmp_path_factory: pytest.TempPathFactory) -> Toolchain:
    """What jobs find in the sandbox; nothing of an image is read here."""
    if sandbox.image is None:
        return find_toolchain()
    return toolchain_of_image(sandbox.image.description(), tmp_path_factory.mktemp("view"))


@pytest.fixture
def worker(toolchain: Toolchain, tmp_path: Path) -> Job:
    """A job that imports torch before it knows what to do."""
    assert toolchain.torch_root is not None
    (tmp_path / "script.py").write_text(_ENDS_AT_ONCE)
    site = (toolchain.torch_root.parent,)
    return Job(
        role="run",
        argv=[str(toolchain.python), "-I", "-S", "{scratch}/script.py"],
        limits=_LIMITS,
        inputs={"script.py": tmp_path / "script.py"},
        readable=() if toolchain.in_image else site,
        preload=("torch",),
        site=site,
    )


def stage(sandbox: SandboxPool, job: Job) -> None:
    """One stage."""
    process = sandbox.start(job)
    facts = process.wait()
    process.close()
    assert facts is not None and facts.status == "ok", facts


@pytest.mark.benchmark(group="build stage")
def test_bare_process(benchmark: Any) -> None:
    """What the others are compared with."""
    benchmark.pedantic(lambda: subprocess.run(["/bin/true"], check=True), rounds=20, warmup_rounds=1)


@pytest.mark.benchmark(group="build stage")
def test_build_stage(benchmark: Any, sandbox: SandboxPool) -> None:
    """A cold start of /bin/true."""
    job = Job(role="build", argv=["/bin/true"], limits=_LIMITS)
    benchmark.pedantic(stage, args=(sandbox, job), rounds=20, warmup_rounds=1)


@pytest.mark.benchmark(group="run stage")
def test_run_stage_cold(benchmark: Any, sandbox: SandboxPool, worker: Job) -> None:
    """torch is imported while the caller waits."""
    benchmark.pedantic(stage, args=(sandbox, worker), rounds=5, warmup_rounds=1)


@pytest.mark.benchmark(group="run stage")
def test_run_stage_warm(benchmark: Any, sandbox: SandboxPool, worker: Job) -> None:
    """From a warm process, whose start is not waited for."""

    def prepared() -> None:
        sandbox.prepare(worker)
        sandbox.settle()

    benchmark.pedantic(stage, setup=prepared, args=(sandbox, worker), rounds=20, warmup_rounds=1)
