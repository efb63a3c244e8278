"""A workload made concrete."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.errors import HarnessBug
from harness.judge.problem import Problem
from harness.suite.catalogue import LoadedTask
from tests.fakes.overlays import throw_away_task


@dataclass(frozen=True)
class Replaced(LoadedTask):
    functions: Any = None

    def reference_module(self) -> ModuleType:
        module = super().reference_module()
        for name, function in vars(self.functions).items():
            setattr(module, name, function)
        return module


def problem_of(name: str, **functions: Any) -> Problem:
    loaded = throw_away_task(name)
    replaced = Replaced(loaded.task, loaded.directory, SimpleNamespace(**functions))
    return Problem(cast(LoadedTask, replaced), loaded.task.workloads[0], "float32")


def test_truth_is_float64_of_what_the_project_received() -> None:
    """The truth is computed in double precision from the inputs as they were rounded."""
    problem = problem_of("scale")
    inputs = problem.make_inputs()
    (truth,) = problem.truth(inputs)
    assert truth.dtype == torch.float64
    assert torch.equal(truth, inputs["x"].double() * 1.7)
    assert problem.reference(inputs)[0].dtype == torch.float32


def test_truth_function_of_a_task() -> None:
    """Where reference.py has `truth`, that is the truth."""
    problem = problem_of("scale", truth=lambda inputs: (inputs["x"] * 0,))
    assert not problem.truth(problem.make_inputs())[0].any()


def test_integers_stay_integers() -> None:
    """Integer outputs are not turned into doubles, and boolean inputs stay boolean."""
    problem = problem_of("argmax")
    assert problem.truth(problem.make_inputs())[0].dtype == torch.int64
    assert (
        problem_of("masked_scale").truth(problem_of("masked_scale").make_inputs())[0].dtype == torch.float64
    )


def test_references_cannot_change_the_inputs() -> None:
    """A reference that writes to its arguments writes to copies."""

    def careless(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        return (inputs["x"].mul_(inputs["alpha"]),)

    problem = problem_of("scale", reference=careless)
    inputs = problem.make_inputs()
    before = inputs["x"].clone()
    problem.truth(inputs)
    problem.reference(inputs)
    assert torch.equal(inputs["x"], before)


@pytest.mark.parametrize(
    "made",
    [{}, {"x": torch.zeros(3, 3)}, {"x": torch.zeros(256, 256, dtype=torch.float64)}],
    ids=["missing", "shape", "dtype"],
)
def test_wrong_inputs_are_our_bug(made: dict[str, torch.Tensor]) -> None:
    """make_inputs that does not keep to the signature is a bug of ours, never a student's failure."""
    problem = problem_of("scale", make_inputs=lambda workload, generator: made)
    with pytest.raises(HarnessBug, match="make_inputs gave no x"):
        problem.make_inputs()


@pytest.mark.parametrize("outputs", [torch.zeros(2), (torch.zeros(2),), ()], ids=["bare", "shape", "none"])
def test_wrong_reference_is_our_bug(outputs: Any) -> None:
    """A reference that does not return the declared outputs is a bug of ours."""
    problem = problem_of("scale", reference=lambda inputs: outputs)
    with pytest.raises(HarnessBug, match="did not return outputs"):
        problem.truth(problem.make_inputs())


def test_bytes_moved() -> None:
    """Operands that are read and written count twice."""
    size = 128 * 256
    assert problem_of("axpy").bytes_moved == 3 * 4 * size
    assert problem_of("masked_scale").bytes_moved == 3 * 4 * size + size
    assert problem_of("scale").flops == 256 * 256
    assert problem_of("axpy").flops is None
