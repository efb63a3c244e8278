"""Answers that take no work are told from right ones."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.grading.trivial import answers, own_outputs, passing, reference_fails
from harness.judge.problem import Problem
from tests.fakes.overlays import throw_away_task


def first(name: str) -> Problem:
    """The first workload of a throw-away task."""
    loaded = throw_away_task(name)
    return Problem(loaded, loaded.task.workloads[0], "float32")


def test_every_kind_of_answer_is_tried() -> None:
    """Constants, bad outputs, an input as it is, each input ignored, other inputs, and coarse ones."""
    problem = first("scale")
    inputs = problem.make_inputs()
    tried = [answer.what for answer in answers(problem, inputs, own_outputs(problem, inputs))]
    assert tried == [
        "zeros", "ones", "mean", "other inputs",
        "NaN for out", "infinities for out", "one NaN for out",
        "values of other inputs for out", "zeros for out",
        "x as it is", "ignores x", "inputs in bfloat16",
    ]  # fmt: skip


def test_every_combination_of_good_and_bad_outputs_is_tried() -> None:
    """Each output bad alone, and all of them: a measure may forget one."""
    problem = first("two_outputs")
    inputs = problem.make_inputs()
    tried = [answer.what for answer in answers(problem, inputs, own_outputs(problem, inputs))]
    first_name, second_name = (operand.name for operand in problem.task.outputs)
    for kind in ("NaN", "one NaN", "infinities", "zeros", "values of other inputs"):
        for which in (first_name, second_name, f"{first_name} and {second_name}"):
            assert f"{kind} for {which}" in tried


@pytest.mark.parametrize("name", ["scale", "two_outputs", "axpy", "matmul"])
def test_none_passes_a_sound_task(name: str) -> None:
    """Also with several outputs, with operands in place and with a measure of the task's own."""
    assert passing(first(name)) == []
    assert reference_fails(first(name)) is None


class Unsound(Problem):
    """A task whose inputs do not matter, or of which a constant is right."""

    def __init__(self, name: str, alpha: float) -> None:
        loaded = throw_away_task(name)
        workload = loaded.task.workloads[0].model_copy(update={"scalars": {"alpha": alpha}})
        super().__init__(loaded, workload, "float32")


def test_a_task_that_zeros_answer_is_found() -> None:
    """0 * x is zero whatever x is: every answer made without x passes."""
    passed = set(passing(Unsound("scale", 0.0)))
    assert {"zeros", "mean", "other inputs", "ignores x", "inputs in bfloat16"} <= passed
    assert not any("NaN" in what or "infinities" in what for what in passed)


def test_a_task_that_its_input_answers_is_found() -> None:
    """1 * x is x."""
    assert passing(Unsound("scale", 1.0)) == ["x as it is"]
