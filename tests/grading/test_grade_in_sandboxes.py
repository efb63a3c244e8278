"""Grading for real in the sandboxes that isolate: a right project passes, a wrong one is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from harness.cli.options import GradingOptions, make_grading_setup
from harness.errors import SandboxError
from harness.grading.setup import GradingSetup
from harness.outcome import Stage, Verdict
from harness.records import Target
from sandboxes.registry import open_sandbox
from tests.fakes.overlays import throw_away_task, zoo_project
from tests.fakes.zoo import row, try_emulated

pytestmark = pytest.mark.slow

ISOLATING = [pytest.param("docker", marks=pytest.mark.docker), "bubblewrap", "landlock"]


@pytest.fixture(params=ISOLATING)
def make_setup(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[Target], GradingSetup]]:
    """As a command makes it: the sandbox is probed, and the tools are those that its jobs see."""
    try:
        open_sandbox(request.param).close()
    except SandboxError as error:
        pytest.skip(f"{request.param}: {error}")
    with ExitStack() as made:
        yield lambda target: made.enter_context(
            closing(make_grading_setup(GradingOptions(target=target, sandbox=request.param, cache=tmp_path)))
        )


def test_grades_are_those_of_every_sandbox(make_setup: Callable[[Target], GradingSetup]) -> None:
    """A right project is correct and timed; one that returns a constant is wrong; the record says where."""
    cpu, task = make_setup("cpu"), throw_away_task("scale")
    right = cpu.grader.grade(zoo_project("correct"), task)
    assert right.verdict is Verdict.CORRECT, right.finding
    assert right.timing is not None
    wrong = cpu.grader.grade(zoo_project("returns_constant"), task)
    assert wrong.verdict is Verdict.WRONG_RESULT, wrong.finding
    assert right.sandbox == cpu.sandbox.name
    assert right.sandbox_facts["network"].startswith("no")


def test_a_cuda_project_is_built_in_every_sandbox(make_setup: Callable[[Target], GradingSetup]) -> None:
    """It is compiled for sm_90 by the nvcc that is seen inside; without a GPU the emulated one checks it."""
    cuda, wanted = make_setup("cuda"), row("honest_gpu_synchronises")
    if cuda.machine.gpu is not None:
        pytest.skip("this machine has a GPU: later stages are measured")
    grade = try_emulated(wanted, cuda.grader).grade
    assert grade.verdict is Verdict.NOT_MEASURED, grade.finding
    assert grade.stage is Stage.LOAD and grade.build is not None and grade.build.ok
    assert grade.correct_emulated, grade.emulated
    assert cuda.machine.nvcc is not None
    if cuda.sandbox.name == "docker":
        assert grade.sandbox_facts["build_image_id"].startswith("sha256:")
        assert len(grade.sandbox_facts["images"]) == 64
