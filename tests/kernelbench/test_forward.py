"""A converted problem through the whole grade, and by KernelBench's own rules."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.grading.grade import Grader
from harness.kernelbench.admission import Admission
from harness.kernelbench.conversion import Converted
from harness.outcome import Verdict
from harness.records import KernelBenchScore, Project, ProjectFile
from harness.records.grade import SCALED
from harness.report.evidence import evidence_lines

pytestmark = pytest.mark.slow
Judged = dict[str, tuple[Converted, Admission]]

BUILD_TOML = """\
[general]
name = "kernelbench-1-scaled-linear"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[torch-noarch]
"""
_FORWARD = """\
import torch


def forward(out, x, *, fc__weight, fc__bias, factor):
    out.copy_(torch.nn.functional.linear(x, fc__weight, fc__bias) * factor + {wrong})
"""


def project(wrong: str) -> Project:
    """In Python, off by `wrong`."""
    package = "torch-ext/kernelbench_1_scaled_linear/__init__.py"
    files = {"build.toml": BUILD_TOML, package: _FORWARD.format(wrong=wrong)}
    return Project(files=tuple(ProjectFile(path=path, text=text) for path, text in files.items()))


def test_a_project_is_called_with_parameters_by_name(judged: Judged, grader: Grader) -> None:
    """Correct by our rules and by theirs, with both speeds side by side."""
    grade = grader.grade(project("0"), judged["1"][0].task())
    assert grade.verdict is Verdict.CORRECT, grade.finding
    score = grade.kernelbench
    assert score is not None and score.correct and score.passed == 5 and score.calls == 100
    assert score.speedup is not None and score.speedup > 0
    assert any("by KernelBench's own rules: 5 of 5 trials" in line for line in evidence_lines(grade))


def test_their_rule_may_pass_what_ours_does_not(judged: Judged, grader: Grader) -> None:
    """Off by 9e-5: within their 1e-4, and out of tolerance by the error budget."""
    grade = grader.grade(project("9e-5 * (x[:, :1] > 0)"), judged["1"][0].task())
    assert grade.verdict is Verdict.WRONG_RESULT, grade.finding
    assert grade.kernelbench is not None and grade.kernelbench.correct


def test_a_wrong_project_is_wrong_by_both(judged: Judged, grader: Grader) -> None:
    """And then it has no speed."""
    grade = grader.grade(project("0.1"), judged["1"][0].task())
    assert grade.verdict is Verdict.WRONG_RESULT
    assert grade.kernelbench == KernelBenchScore(trials=5, passed=0, correct=False, tolerance=1e-4)
    assert grade.kernelbench.speedup is None


def test_a_scaled_problem_says_so_and_has_no_score_by_their_rules(judged: Judged, grader: Grader) -> None:
    """A few rows of 65536: the flag stands in the record, and KernelBench's figures are of its own sizes."""
    name = "kernelbench-6-huge"
    package = f"torch-ext/{name.replace('-', '_')}/__init__.py"
    forward = "import torch\n\n\ndef forward(out, x):\n    torch.tanh(x - 0.5, out=out)\n"
    files = {"build.toml": BUILD_TOML.replace("kernelbench-1-scaled-linear", name), package: forward}
    grade = grader.grade(
        Project(files=tuple(ProjectFile(path=path, text=text) for path, text in files.items())),
        judged["6"][0].task(),
    )
    assert grade.verdict is Verdict.CORRECT, grade.finding
    assert SCALED in grade.flags and grade.timing is not None and grade.kernelbench is None
