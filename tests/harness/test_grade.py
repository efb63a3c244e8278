"""One project on one task: which stage ends a grade, and what is never graded."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.builder.toolchain import Toolchain, find_toolchain
from harness.errors import SandboxError, UsageError
from harness.grade import Grader, GradeSettings
from harness.machine import machine_facts
from harness.outcome import Cause, Stage, Verdict
from harness.records import Finding
from sandboxes.local import LocalSandbox
from sandboxes.tracking import TrackingSandbox
from tests.fakes import projects
from tests.fakes.overlays import throw_away_task, zoo_project

SCALE = throw_away_task("scale")


def settings(cache: Path, **changes: object) -> GradeSettings:
    """For the CPU unless changed."""
    return GradeSettings(**{"target": "cpu", "protocol": "quick", "cache": cache, **changes})  # type: ignore[arg-type]


@pytest.mark.slow
def test_cuda_without_a_gpu_is_not_measured(tmp_path: Path) -> None:
    """Without a GPU a CUDA project is built for real, and the rest is not measured: never guessed."""
    toolchain = find_toolchain()
    missing = toolchain.missing("cuda")
    if missing is not None:
        pytest.skip(f"cannot build for CUDA: {missing}")
    machine = machine_facts(toolchain)
    if machine.gpu is not None:
        pytest.skip("this machine has a GPU")
    grader = Grader(settings(tmp_path, target="cuda"), LocalSandbox(), toolchain, machine)
    grade = grader.grade(projects.project(), SCALE)
    assert (grade.verdict, grade.stage, grade.finding.cause) == (
        Verdict.NOT_MEASURED,
        Stage.LOAD,
        Cause.NO_CUDA_DEVICE,
    ), grade.finding
    assert "no CUDA device" in grade.finding.message
    assert (grade.compiled, grade.correct, grade.check, grade.timing) == (True, None, None, None)


@pytest.mark.slow
def test_package_of_another_name_does_not_load(grader: Grader) -> None:
    """A project that builds, but under another name than the task asks for, fails to load; both are named."""
    grade = grader.grade(projects.project(toml={'backends = ["cpu", "cuda"]': 'backends = ["cpu"]'}), SCALE)
    assert (grade.verdict, grade.stage, grade.finding.cause) == (
        Verdict.LOAD_FAILED,
        Stage.LOAD,
        Cause.MISSING_FUNCTION,
    ), grade.finding
    assert "'fill_it'" in grade.finding.message
    assert "'scale'" in grade.finding.message


@pytest.mark.slow
def test_identical_project_is_built_once(grader: Grader, tmp_path: Path) -> None:
    """The second grade of the same project takes the build from the cache, and the same log."""
    project = zoo_project("does_not_compile", token="test_grade")
    stages: list[str] = []
    first = grader.grade(project, SCALE, log=tmp_path / "first", observer=stages.append)
    second = grader.grade(project, SCALE, log=tmp_path / "second")
    assert first.build is not None
    assert second.build is not None
    assert second.build.cache_hit
    assert (first.verdict, second.finding) == (Verdict.BUILD_FAILED, first.finding)
    assert stages == ["build"]
    assert "error:" in (tmp_path / "second").read_text()


@pytest.mark.slow
def test_stages_are_observed_in_order(grader: Grader) -> None:
    """A wrong project is built and checked, never timed; the grade holds what was found."""
    stages: list[str] = []
    grade = grader.grade(zoo_project("returns_constant"), SCALE, observer=stages.append)
    assert stages == ["build", "check"]
    assert (grade.stage, grade.timing) == (Stage.CHECK, None)
    assert grade.check is not None
    assert grade.check.finding == grade.finding
    assert (grade.sandbox, grade.sandbox_facts["network"]) == ("local", "open")


def test_full_protocol_is_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    """The protocol that is not there yet is refused before anything runs."""
    with pytest.raises(UsageError, match="full protocol is not built yet"):
        Grader(settings(tmp_path, protocol="full"), LocalSandbox(), toolchain, machine_facts(toolchain))


def test_missing_compiler_is_refused(toolchain: Toolchain, tmp_path: Path) -> None:
    """A machine that cannot build for the target is an error of usage that names what is missing."""
    without = toolchain.model_copy(update={"gxx": None})
    with pytest.raises(UsageError, match=r"cannot build for cpu: .*g\+\+"):
        Grader(settings(tmp_path), LocalSandbox(), without, machine_facts(toolchain))


def test_failure_of_the_sandbox_is_raised(toolchain: Toolchain, tmp_path: Path) -> None:
    """What fails on our side is an exception, never a grade."""
    sandbox = TrackingSandbox(LocalSandbox())
    sandbox.stop()
    grader = Grader(settings(tmp_path), sandbox, toolchain, machine_facts(toolchain))
    with pytest.raises(SandboxError, match="stopped"):
        grader.grade(zoo_project("correct"), SCALE)
    grader.close()


def test_reply_without_a_project(grader: Grader) -> None:
    """A reply that held no project has a grade of its own, at the first stage."""
    grade = grader.no_project(Finding(cause=Cause.REFUSAL, message="the model refused"), SCALE)
    assert (grade.verdict, grade.stage, grade.project) == (Verdict.NO_PROJECT, Stage.PROJECT, None)
    assert (grade.compiled, grade.correct) == (False, False)


def test_judge_cannot_be_read_by_its_own_user(grader: Grader) -> None:
    """While a grader exists, this process is not dumpable: other processes of the user cannot read it."""
    import ctypes

    pr_get_dumpable = 3
    assert ctypes.CDLL(None).prctl(pr_get_dumpable, 0, 0, 0, 0) == 0
