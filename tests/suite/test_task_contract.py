"""What a task may ask for, through the real path: several outputs, ties, in-place and partial writes."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from harness.grading.grade import Grader
from harness.outcome import Cause, Verdict
from tests.fakes.overlays import ZOO, overlaid, throw_away_task


class Case(NamedTuple):
    """A project's Python function, and what is expected of it."""

    task: str
    function: str
    cause: Cause
    message: str = ""


_SUMS = "def scale_and_sum(out, sums, x, *, alpha):\n    ops.scale(out, x, alpha)\n"
_ARGMAX = "def argmax(index, x):\n    index.copy_({})\n"
_AXPY = "def axpy(y, x, *, alpha):\n    {}\n"
_SCALE = "def scale(out, x, *, alpha):\n    {}\n"
_MASKED = "def masked_scale(y, x, mask, *, alpha):\n    {}\n"

CASES = {
    "two outputs": Case("two_outputs", _SUMS + "    torch.sum(out, 1, out=sums)\n", Cause.PASSED),
    "the second output is wrong": Case(
        "two_outputs", _SUMS + "    torch.sum(x, 1, out=sums)\n", Cause.WRONG_VALUES, "elements of sums"
    ),
    "the second output is left out": Case("two_outputs", _SUMS, Cause.UNWRITTEN_OUTPUT, "128 elements"),
    "the other of two ties": Case(
        "argmax", _ARGMAX.format("x.shape[1] - 1 - x.flip(1).argmax(1)"), Cause.PASSED
    ),
    "not the largest": Case("argmax", _ARGMAX.format("x.argmin(1)"), Cause.WRONG_VALUES, "own measure"),
    "an index out of range": Case(
        "argmax", _ARGMAX.format("x.argmax(1) + 1000"), Cause.WRONG_VALUES, "cannot use the outputs"
    ),
    "in place": Case("axpy", _AXPY.format("y.add_(x, alpha=alpha)"), Cause.PASSED),
    "in place, twice": Case(
        "axpy", _AXPY.format("y.add_(x, alpha=2 * alpha)"), Cause.WRONG_VALUES, "elements of y"
    ),
    "in place, the wrong operand": Case(
        "axpy", _AXPY.format("x.add_(y, alpha=alpha)"), Cause.MUTATED_INPUT, "wrote to x"
    ),
    "a global setting is changed": Case(
        "axpy",
        _AXPY.format("y.add_(x, alpha=alpha); torch.set_num_threads(2)"),
        Cause.CHANGED_GLOBALS,
        "num_threads was 1 and is 2",
    ),
    "any promised layout": Case("strided_scale", _SCALE.format("torch.mul(x, alpha, out=out)"), Cause.PASSED),
    "a layout that the task promises is ignored": Case(
        "strided_scale",
        _SCALE.format("ops.scale(out, x, alpha)"),
        Cause.WRONG_VALUES,
        "odd float32, transposed: ",
    ),
    "partly written": Case("masked_scale", _MASKED.format("y[mask] = alpha * x[mask]"), Cause.PASSED),
    "written outside of the mask, within tolerance": Case(
        "masked_scale",
        _MASKED.format("y.copy_(torch.where(mask, alpha * x, y * (1 + 2e-7)))"),
        Cause.MUTATED_INPUT,
        "wrote to y where mask is false",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_task_contract(name: str, grader: Grader) -> None:
    """A project that does what the task asks passes, and its wrong variants fail for their own reason."""
    case = CASES[name]
    source = "import torch\n\nfrom ._ops import ops\n\n\n" + case.function
    project = overlaid(ZOO / "base", {"torch-ext/scale/__init__.py": source})
    grade = grader.grade(project, throw_away_task(case.task))
    assert grade.finding.cause is case.cause, grade.finding
    assert case.message in grade.finding.message
    assert (grade.verdict is Verdict.CORRECT) == (case.cause is Cause.PASSED)
