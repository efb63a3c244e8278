"""Grades of converted problems: ordinary projects, and plain `ModelNew` files."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.errors import UsageError
from harness.grading.grade import Grader
from harness.kernelbench.admission import Admission
from harness.kernelbench.conversion import Converted, read_submission, wrapped
from harness.outcome import Cause, Verdict
from harness.records import KernelBenchScore, Project, ProjectFile
from harness.records.grade import SCALED
from harness.report.evidence import evidence_lines
from tests.fakes.universal import BUILD_TOML

Judged = dict[str, tuple[Converted, Admission]]


def python_project(name: str, signature: str, body: str) -> Project:
    """A project in Python for the problem of that name."""
    package = f"torch-ext/{name.replace('-', '_')}/__init__.py"
    text = f"import torch\n\n\ndef forward({signature}):\n    {body}\n"
    files = {"build.toml": BUILD_TOML.replace("scale", name), package: text}
    return Project(files=tuple(ProjectFile(path=path, text=files[path]) for path in sorted(files)))


def project(wrong: str) -> Project:
    """The scaled linear layer, off by `wrong`."""
    return python_project(
        "kernelbench-1-scaled-linear",
        "out, x, *, fc__weight, fc__bias, factor",
        f"out.copy_(torch.nn.functional.linear(x, fc__weight, fc__bias) * factor + {wrong})",
    )


@pytest.mark.slow
def test_a_project_is_called_with_parameters_by_name(judged: Judged, grader: Grader) -> None:
    """Correct by our rules and by theirs, with both speeds side by side."""
    grade = grader.grade(project("0"), judged["1"][0].task())
    assert grade.verdict is Verdict.CORRECT, grade.finding
    score = grade.kernelbench
    assert score is not None and score.correct and score.passed == 5 and score.calls == 100
    assert score.speedup is not None and score.speedup > 0
    assert any("by KernelBench's own rules: 5 of 5 trials" in line for line in evidence_lines(grade))


@pytest.mark.slow
def test_their_rule_may_pass_what_ours_does_not(judged: Judged, grader: Grader) -> None:
    """Off by 9e-5: within their 1e-4, and out of tolerance by the error budget."""
    grade = grader.grade(project("9e-5 * (x[:, :1] > 0)"), judged["1"][0].task())
    assert grade.verdict is Verdict.WRONG_RESULT, grade.finding
    assert grade.kernelbench is not None and grade.kernelbench.correct


@pytest.mark.slow
def test_a_wrong_project_is_wrong_by_both(judged: Judged, grader: Grader) -> None:
    """And then it has no speed."""
    grade = grader.grade(project("0.1"), judged["1"][0].task())
    assert grade.verdict is Verdict.WRONG_RESULT
    assert grade.kernelbench == KernelBenchScore(trials=5, passed=0, correct=False, tolerance=1e-4)
    assert grade.kernelbench.speedup is None


@pytest.mark.slow
def test_a_scaled_problem_says_so_and_has_no_score_by_their_rules(judged: Judged, grader: Grader) -> None:
    """A few rows of 65536: the flag stands in the record, and KernelBench's figures are of its own sizes."""
    huge = python_project("kernelbench-6-huge", "out, x", "torch.tanh(x - 0.5, out=out)")
    grade = grader.grade(huge, judged["6"][0].task())
    assert grade.verdict is Verdict.CORRECT, grade.finding
    assert SCALED in grade.flags and grade.timing is not None and grade.kernelbench is None


LINEAR = """\
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, 8)

    def forward(self, x, factor):
        return torch.addmm(self.fc.bias, x, self.fc.weight.t()) * factor
"""

CASES = {
    "as KernelBench has it": (LINEAR, Cause.PASSED, ""),
    "other names in the same order": (LINEAR.replace("self.fc", "self.dense"), Cause.PASSED, ""),
    "weights that are its own": (
        LINEAR.replace("self.fc = nn.Linear(width, 8)", "self.fc = nn.Linear(width, 9)").replace("fc", "own"),
        Cause.OP_RAISED,
        "ModelNew has no parameter or buffer fc.bias, fc.weight; it has own.weight, own.bias",
    ),
    "what was made of the weights in the constructor": (
        LINEAR.replace(
            "(width, 8)\n", "(width, 8)\n        self.kept = self.fc.weight.detach().clone()\n"
        ).replace("self.fc.weight.t()", "self.kept.t()"),
        Cause.WRONG_VALUES,
        "",
    ),
    "a wrong result": (LINEAR.replace("* factor", "+ factor"), Cause.WRONG_VALUES, ""),
    "no class after all": (LINEAR + "del ModelNew\n", Cause.OP_RAISED, "ModelNew"),
    "it cannot be imported": ("import nowhere\n" + LINEAR, Cause.IMPORT_ERROR, "nowhere"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_answer_gets_its_verdict(name: str, judged: Judged, grader: Grader) -> None:
    """Weights are fresh for every call, and reach the module by name or in order."""
    text, cause, said = CASES[name]
    converted, _ = judged["1"]
    grade = grader.grade(wrapped(text, converted), converted.task())
    assert grade.finding.cause is cause, grade.finding
    assert said in grade.finding.message
    assert grade.build is not None and grade.build.jit


@pytest.mark.slow
def test_the_file_is_kept_as_it_is(judged: Judged) -> None:
    """Byte for byte, beside the problem and the code that calls it."""
    project = wrapped(LINEAR, judged["1"][0])
    files = {file.path: file.text for file in project.files}
    (submission,) = [text for path, text in files.items() if path.endswith("/submission.py")]
    (package,) = [text for path, text in files.items() if path.endswith("/__init__.py")]
    assert submission == LINEAR
    assert "_ARGUMENTS = ('x', 'factor')" in package
    assert "'fc.weight'" in package


@pytest.mark.parametrize(
    "text",
    [
        LINEAR,
        "ModelNew = object",
        "from x import Y as ModelNew",
        "class ModelNew(:",
    ],  # errors are the worker's
)
def test_a_file_that_binds_model_new_is_an_answer(tmp_path: Path, text: str) -> None:
    """At its top level; a syntax error is left to the worker to report."""
    (tmp_path / "answer.py").write_text(text)
    assert read_submission(tmp_path / "answer.py") == text


def test_what_is_none_is_refused(tmp_path: Path) -> None:
    """With what was expected, before anything is built."""
    file = tmp_path / "answer.py"
    with pytest.raises(UsageError, match="cannot be read"):
        read_submission(file)
    file.write_text("# ModelNew\nclass Model: pass\n")
    with pytest.raises(UsageError, match="defines no class ModelNew"):
        read_submission(file)
    file.write_bytes(b"#" * (1 << 20) + b"\nclass ModelNew: pass\n")
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        read_submission(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read as text"):
        read_submission(file)
