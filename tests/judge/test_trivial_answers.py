"""Answers that take no work are told from right ones."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.judge.problem import Problem
from harness.judge.trivial_answers import answers, own_outputs, passing, reference_fails
from tests.fakes.overlays import throw_away_task


def first(name: str) -> Problem:
    """The first workload of a throw-away task."""
    loaded = throw_away_task(name)
    return Problem(loaded, loaded.task.workloads[0], "float32")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Threads of tests side by side would wait for each other by spinning."""
    torch.set_num_threads(1)


def test_every_kind_of_answer_is_tried() -> None:
    """Constants, an input as it is, ignored, other and coarse inputs, and all sets of bad outputs."""

    def tried(name: str) -> list[str]:
        problem = first(name)
        inputs = problem.make_inputs()
        return [answer.what for answer in answers(problem, inputs, own_outputs(problem, inputs))]

    one, two = (operand.name for operand in first("two_outputs").task.outputs)
    kinds = ("NaN", "one NaN", "infinities", "zeros", "values of other inputs")
    wanted = {f"{kind} for {which}" for kind in kinds for which in (one, two, f"{one} and {two}")}
    assert wanted <= set(tried("two_outputs"))
    assert tried("scale") == [
        "zeros", "ones", "mean", "other inputs",
        "NaN for out", "infinities for out", "one NaN for out",
        "values of other inputs for out", "zeros for out",
        "x as it is", "ignores x", "inputs in bfloat16",
    ]  # fmt: skip


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
