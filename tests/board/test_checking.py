"""`board check --regrade` with a fake grader at the seam."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.board.checking import Checked, Regrading, check_folder, grade_share
from harness.board.runs import delisted, read_run
from harness.board.submission import pack
from harness.errors import SandboxError, UsageError
from harness.outcome import Cause
from harness.records import Finding, Grade, Project, TrialKey
from harness.suite.catalogue import LoadedTask
from tests.board.runs import shipped, submitted
from tests.fakes.trials import Quiet
from tests.report import factories as make

pytestmark = pytest.mark.slow
Made = Callable[[TrialKey], Grade]


class Grader:
    """Grades what it is given as `made` says."""

    device_bytes = None

    def __init__(self, made: Made) -> None:
        self.made, self.graded = made, 0

    def grade(self, project: Project, loaded: LoadedTask, **_: Any) -> Grade:
        self.graded += 1
        key = TrialKey(task=loaded.task.id, model=make.MODEL, arm="a", repeat=0)
        facts = {"task_digest": loaded.task.digest, "project": project.digest}
        return self.made(key).model_copy(update=facts)

    def no_project(self, finding: Finding, loaded: LoadedTask) -> Grade:
        raise AssertionError("every reply holds a project")


def checked(folder: Path, made: Made, gpu: str | None = "NVIDIA H200") -> tuple[Checked, Grader]:
    """One run, of whose tasks a tenth is graded again."""
    pack(read_run(submitted(folder / "runs")), folder / "board")
    grader = Grader(made)
    sandbox = SimpleNamespace(name="docker", facts=dict, stop=lambda: None)
    setup: Any = SimpleNamespace(
        sandbox=sandbox, grader=grader, machine=make.machine(gpu), stop=lambda: None, at_once=1,
        noting=lambda note: nullcontext(), close=lambda: None,
    )  # fmt: skip
    tasks = shipped().tasks
    how = Regrading(lambda names, _: [tasks[n] for n in names], lambda _: setup, folder / "again", Quiet())
    found = check_folder(folder / "board", shipped())
    grade_share(folder / "board", found, 0.1, how)
    return found, grader


def as_fast(speedup: float) -> Made:
    """Correct, with that speedup, at which both arms are measured."""
    return lambda key: make.grade(key, speedup=speedup, timing=make.timed(speedup))


def test_a_slower_kernel_is_delisted_with_the_reason(tmp_path: Path) -> None:
    """One task of ten is graded again, all its ten projects; the run stays, without rank."""
    found, grader = checked(tmp_path, as_fast(0.5))
    assert grader.graded == 10
    assert "the speedups' intervals do not meet" in found.faults["one"]
    assert "intervals do not meet" in delisted(tmp_path / "board")["one"]
    assert read_run(tmp_path / "board" / "one").delisted is not None


def test_a_wrong_kernel_is_delisted(tmp_path: Path) -> None:
    """Correct as claimed, wrong when graded again."""
    found, _ = checked(tmp_path, lambda key: make.grade(key, Cause.WRONG_VALUES, "worst error 41"))
    assert "claimed correct, graded again wrong_result" in found.faults["one"]


@pytest.mark.parametrize(
    ("made", "gpu", "said"),
    [
        (as_fast(0.5), "NVIDIA H100", "graded again on NVIDIA H100: the claim is of NVIDIA H200"),
        (lambda key: make.grade(key, Cause.NO_CUDA_DEVICE, "no GPU"), None, "graded again on no GPU"),
        (lambda key: make.grade(key, timing=make.timed(1.2).model_copy(
            update={"speedup": make.ratio(1.2, clear=False)})), "NVIDIA H200", "too wide to compare"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_said_and_delists_nobody(
    tmp_path: Path, made: Made, gpu: str | None, said: str
) -> None:
    """Another GPU, none, or an interval that contradicts nothing: never a silent pass."""
    found, _ = checked(tmp_path, made, gpu)
    assert found.faults == {} and said in found.unchecked["one"]
    assert delisted(tmp_path / "board") == {}


@pytest.mark.parametrize("error", [SandboxError("it does not start"), UsageError("no such task")])
def test_a_grader_that_fails_stops_no_other_run(tmp_path: Path, error: Exception) -> None:
    """What went wrong stands beside the run."""

    def fails(key: TrialKey) -> Grade:
        raise error

    found, _ = checked(tmp_path, fails)
    assert found.faults == {} and "one" in found.unchecked
