"""What no task's own measure can let pass: NaN and infinities where the truth is finite."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.grading.trivial import own_outputs
from harness.judge.problem import Problem
from harness.judge.verifier import Verifier
from harness.suite.catalogue import load_task
from tests.fakes.overlays import throw_away_task

TASKS = Path(__file__).parents[2] / "tasks"
OWN_MEASURE = sorted(
    path.parent.relative_to(TASKS).as_posix()
    for path in TASKS.glob("*/*/reference.py")
    if "\ndef compare(" in path.read_text()
)


class Blind(Problem):
    def __init__(self) -> None:
        loaded = throw_away_task("scale")
        super().__init__(loaded, loaded.task.workloads[0], "float32")

    @property
    def custom_compare(self) -> object:
        return lambda outputs, truths, inputs: max(0.0, math.nan)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_blind_measure_lets_no_garbage_pass(value: float) -> None:
    """One element is enough, and the message says where."""
    problem = Blind()
    inputs = problem.make_inputs()
    (out,) = own_outputs(problem, inputs)
    assert Verifier(problem).values(inputs, (out,)) is None
    out[1, 2] = value
    finding = Verifier(problem).values(inputs, (out,))
    assert finding is not None
    assert (
        "1 elements of out are NaN or infinite where the truth is finite; the first, at [1, 2]"
        in finding.message
    )


def test_nan_of_the_truth_is_left_to_the_measure() -> None:
    """Where the truth itself is no number, the task's measure decides."""
    problem = Blind()
    inputs = problem.make_inputs()
    inputs["x"][0, 0] = math.nan
    assert Verifier(problem).values(inputs, own_outputs(problem, inputs)) is None


@pytest.mark.parametrize("name", OWN_MEASURE)
def test_tasks_with_a_measure_of_their_own(name: str) -> None:
    """One NaN in any floating output is wrong, whatever the others are."""
    loaded = load_task(TASKS / name)
    smallest = min(
        (Problem(loaded, w, loaded.task.dtypes["cpu"][0]) for w in loaded.task.workloads_for("cpu")),
        key=lambda one: one.size_bytes or math.inf,
    )
    inputs = smallest.make_inputs()
    right = own_outputs(smallest, inputs)
    assert Verifier(smallest).values(inputs, right) is None
    for index, value in enumerate(right):
        if value.is_floating_point() and value.numel():
            bad = value.clone()
            bad.view(-1)[-1] = math.nan
            outputs = tuple(bad if i == index else one for i, one in enumerate(right))
            assert Verifier(smallest).values(inputs, outputs) is not None
