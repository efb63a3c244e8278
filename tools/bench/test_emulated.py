"""What checking a CUDA project on the emulated GPU costs: the check after the build, in `quick`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")
pytest.importorskip("pytest_benchmark", reason="needs pytest-benchmark (pip install pytest-benchmark)")

from harness.builder.toolchain import find_toolchain
from harness.device.emulated.engine import lacks
from harness.device.machine import machine_facts
from harness.grading.grade import Grader
from harness.grading.workers import GradeSettings
from harness.suite.catalogue import expert_project, select_tasks
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool

EXPERTS = ("l1/softmax", "l2/rms_norm_quant_fp8", "diffusers/flux_joint_attention")
"""One near the median, one that is cheap, and the dearest."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture
def grader(cache: Path) -> Iterator[Grader]:
    toolchain = find_toolchain()
    why = toolchain.missing("cuda") or lacks(toolchain)
    if why is not None:
        pytest.skip(why)
    settings = GradeSettings(target="cuda", protocol="quick", cache=cache, timed=False, emulate=True)
    made = Grader(settings, SandboxPool(LocalBackend()), toolchain, machine_facts(toolchain))
    yield made
    made.close()


@pytest.mark.parametrize("kernels", ["to compile", "cached"])
@pytest.mark.parametrize("task", EXPERTS)
def test_check(benchmark: Any, grader: Grader, cache: Path, task: str, kernels: str) -> None:
    """The build and the emulator's own libraries are cached in both."""
    [loaded] = select_tasks([task])
    project = expert_project(loaded.task)
    assert project is not None
    if kernels == "to compile":
        grader.grade(project, loaded)
        shutil.rmtree(cache / "emulated" / "kernels")
    grade = benchmark.pedantic(lambda: grader.grade(project, loaded), rounds=1)
    assert grade.correct_emulated, grade.emulated
