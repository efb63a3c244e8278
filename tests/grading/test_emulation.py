"""CUDA projects on a machine without a GPU: built for sm_90, then checked on the emulated GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.builder.toolchain import Toolchain
from harness.device.emulated.engine import lacks
from harness.device.machine import machine_facts
from harness.grading.emulation import outcome_of
from harness.grading.grade import Grader
from harness.grading.workers import GradeSettings
from harness.kernelbench.admission import admit_all
from harness.kernelbench.problems import find_problems
from harness.models.recording import load
from harness.outcome import Cause, Verdict
from harness.records import CheckResult, EmulatedCheck, EmulatedFinding, Finding, Grade, Project, ProjectFile
from harness.records.grade import EmulatedOutcome
from harness.student.answer import parse_reply
from harness.suite.catalogue import expert_project, read_project, select_tasks
from sandboxes.pool import SandboxPool
from tests.fakes.kernelbench import write_checkout
from tests.fakes.overlays import ZOO, throw_away_task

EXPERT = "l2/adaln_modulate"
Grading = Callable[[Project, Any], Grade]


@pytest.fixture(scope="session")
def emulating(
    toolchain: Toolchain, sandbox: SandboxPool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Grader]:
    """Grades CUDA projects without a GPU."""
    why = toolchain.missing("cuda") or lacks(toolchain)
    if why is not None:
        pytest.skip(why)
    cache = tmp_path_factory.mktemp("emulated")
    settings = GradeSettings(target="cuda", protocol="quick", cache=cache, timed=False, emulate=True)
    made = Grader(settings, sandbox, toolchain, machine_facts(toolchain))
    yield made
    made.close()


@pytest.fixture(scope="session")
def expert(emulating: Grader) -> Grade:
    """The grade of an expert project; tests/gpu has those of the others."""
    [loaded] = select_tasks([EXPERT])
    project = expert_project(loaded.task)
    assert project is not None
    return emulating.grade(project, loaded)


def scale_project(**files: tuple[str, str]) -> Project:
    """The zoo's CUDA base with (old, new) text in its files, by suffix of their path."""
    texts = {file.path: file.text for file in read_project(ZOO / "base_cuda").files}
    for suffix, (old, new) in files.items():
        [path] = [path for path in texts if path.endswith(f".{suffix}")]
        assert old in texts[path]
        texts[path] = texts[path].replace(old, new)
    return Project(files=tuple(ProjectFile(path=path, text=texts[path]) for path in sorted(texts)))


def test_an_expert_is_correct_and_the_verdict_stays_not_measured(expert: Grade) -> None:
    """Every case of `quick` in every dtype; no time, no rank."""
    assert expert.verdict is Verdict.NOT_MEASURED and expert.correct is None and expert.compiled
    assert expert.emulated is not None
    assert (expert.emulated.outcome, expert.correct_emulated) == ("correct", True), expert.emulated.message
    assert expert.emulated.check is not None and len(expert.emulated.check.workloads) > 20
    assert expert.timing is None and expert.check is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "outcome", "said"),
    [
        ({}, "correct", "right on every workload"),
        ({"cu": ("alpha * x[i]", "alpha * x[i] + 1e-3f")}, "wrong_result", "out of tolerance"),
        ({"cu": ("if (i < n)", "if (i <= n)")}, "crashed", "past the end of an allocation"),
        ({"cu": ("if (i < n)", "if (i < n - 1)")}, "wrong_result", "never written"),
        ({"cu": ("if (i < n)", "while (x[0] == x[0]) {} if (i < n)")}, "timed_out", "step budget"),
        ({"cu": ("if (i < n)", "__trap(); if (i < n)")}, "crashed", "trap"),
        ({"cu": ("scale_kernel<<<", "cudaMipmappedArray_t a; cudaGetMipmappedArrayLevel(nullptr, a, 0);\n  "
                 "scale_kernel<<<")}, "cannot_emulate", "cudaGetMipmappedArrayLevel"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(
    emulating: Grader, files: dict[str, tuple[str, str]], outcome: str, said: str
) -> None:
    """Each with its outcome and a message that says where."""
    grade = emulating.grade(scale_project(**files), throw_away_task("scale"))
    assert grade.emulated is not None, grade.finding
    assert grade.emulated.outcome == outcome and said in grade.emulated.message, grade.emulated.message
    if outcome == "crashed":
        assert grade.emulated.finding is not None and "scale_kernel" in str(grade.emulated.finding.kernel)
        assert grade.emulated.finding.thread is not None


@pytest.mark.slow
def test_kernelbench_problems(emulating: Grader, tmp_path: Path) -> None:
    """A CUDA project that answers one is checked as any other."""
    checkout = write_checkout(tmp_path, ("17_ReLU",))
    [(converted, admission)] = admit_all(find_problems(f"kernelbench:{checkout}"), "cuda", tmp_path / "cache")
    assert admission.admitted, admission
    named = {
        "toml": ('name = "scale"', 'name = "kernelbench-17-relu"'),
        "cu": ("alpha * x[i]", "fmaxf(x[i], 0.f)"),
        "py": ("scale(out, x, *, alpha):", "forward(out, x, alpha=1.0):"),
    }
    moved = tuple(
        file.model_copy(
            update={"path": file.path.replace("torch-ext/scale", "torch-ext/kernelbench_17_relu")}
        )
        for file in scale_project(**named).files
    )
    grade = emulating.grade(Project(files=moved), converted.task())
    assert grade.emulated is not None and grade.emulated.outcome == "correct", grade


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "arms"),
    [
        ("l1/argmax", ""),
        ("l1/silu_and_mul", ""),
        # Asks for the device's properties.
        pytest.param("l1/cumsum", "without_skill", marks=pytest.mark.exhaustive),
    ],
    ids=["argmax", "silu_and_mul", "cumsum"],
)
def test_recorded_replies(task: str, arms: str, emulating: Grader) -> None:
    """Whatever of the first repeat compiles is right."""
    study = Path(__file__).parents[2] / "studies/cuda-kernel-builder"
    replies = load(study / "recording-contract").replies
    [loaded] = select_tasks([task])
    for key, recorded in replies.items():
        if key.task != task.replace("/", "__") or key.repeat or not key.arm.startswith(arms):
            continue
        project = parse_reply(recorded.reply)
        assert isinstance(project, Project)
        grade = emulating.grade(project, loaded)
        assert grade.not_built or grade.correct_emulated, (key, grade.finding, grade.emulated)


@pytest.mark.parametrize(
    ("cause", "seen", "outcome"),
    [
        (Cause.WRONG_VALUES, None, "wrong_result"),
        (Cause.WROTE_OUTSIDE, None, "wrong_result"),
        (Cause.NONDETERMINISTIC, None, "race"),
        (Cause.WALL_TIMEOUT, None, "cannot_emulate"),
        (Cause.WALL_TIMEOUT, "timed_out", "timed_out"),
        (Cause.WRONG_VALUES, "race", "race"),
        (Cause.WRONG_VALUES, "uninitialized", "wrong_result"),
        (None, "race", "race"),
        (None, None, "correct"),
    ],
)
def test_no_report_makes_a_wrong_result_correct(
    cause: Cause | None, seen: str | None, outcome: EmulatedOutcome
) -> None:
    """What the judge found stays, whatever is reported; a report can only add."""
    finding = None if cause is None else Finding(cause=cause, message="found")
    check = CheckResult(workloads=(), finding=finding)
    reported = None if seen is None else EmulatedFinding(kind=seen, message="seen")
    said, message = outcome_of(check, reported)
    assert said == outcome
    EmulatedCheck(outcome=said, message=message, finding=reported, check=check, wall_s=0.0)
