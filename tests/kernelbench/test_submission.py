"""A plain `ModelNew` file is graded like any project, by the same judge."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.errors import UsageError
from harness.grading.grade import Grader
from harness.kernelbench.admission import Admission
from harness.kernelbench.conversion import Converted, read_submission, wrapped
from harness.outcome import Cause

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

Judged = dict[str, tuple[Converted, Admission]]

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
