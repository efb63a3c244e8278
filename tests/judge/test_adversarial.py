"""Adversarial values: what each kind does, and what none does."""

from __future__ import annotations

from typing import get_args

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.judge.adversarial import INTEGERS, changes, make, unfit
from harness.judge.problem import Problem
from harness.records.task import PROMISED, Values
from harness.suite.catalogue import LoadedTask
from tests.fakes.overlays import throw_away_task

KINDS = (*get_args(Values), INTEGERS)
UNPROMISED = tuple(kind for kind in KINDS if kind not in PROMISED)


def problem_of(name: str, dtype: str = "float32", **changed: object) -> Problem:
    loaded = throw_away_task(name)
    task = loaded.task.model_copy(update=changed)
    return Problem(LoadedTask(task, loaded.directory), task.workloads[0], dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float64"])
@pytest.mark.parametrize("kind", UNPROMISED)
def test_nothing_unpromised_is_made(kind: str, dtype: str) -> None:
    """Without a promise all values are finite, and none is subnormal; shapes and dtypes stay."""
    x = make(problem_of("scale", dtype), kind)["x"]
    assert (tuple(x.shape), x.dtype) == ((256, 256), getattr(torch, dtype))
    wide = x.double()
    assert wide.isfinite().all()
    assert not ((wide != 0) & (wide.abs() < torch.finfo(x.dtype).smallest_normal)).any()


def test_a_truth_that_no_answer_can_hold_is_not_judged() -> None:
    """Infinities and what the output's dtype cannot hold; booleans always fit."""
    problem = problem_of("scale", "float16")
    assert unfit(problem, (torch.tensor([1.0]),)) is None
    assert "float16 cannot hold" in str(unfit(problem, (torch.tensor([1e6]),)))
    assert unfit(problem, (torch.tensor([float("nan")]),)) is not None
    operands = tuple(one.model_copy(update={"dtype": "bool"}) for one in problem.task.operands)
    assert unfit(problem_of("scale", operands=operands), (torch.tensor([True]),)) is None


@pytest.mark.parametrize("kind", ["sorted", "reversed", "ties", "constant"])
def test_rearranging_kinds_draw_nothing_new(kind: str) -> None:
    """What is safe for any task takes every value from those that the task drew for the row."""
    problem = problem_of("scale")
    drawn = {}
    original = problem.make_inputs
    problem.make_inputs = lambda key=None: drawn.setdefault("x", original())  # type: ignore[method-assign]
    before = original()["x"]
    drawn["x"] = {"x": before.clone()}
    after = make(problem, kind)["x"]
    assert all(set(a.tolist()) <= set(b.tolist()) for a, b in zip(after, before, strict=True))


def test_orders() -> None:
    """Sorted rows ascend, reversed ones descend, constant ones do neither, ties repeat at most 8 values."""
    problem = problem_of("scale")
    assert (make(problem, "sorted")["x"].diff(dim=-1) >= 0).all()
    assert (make(problem, "reversed")["x"].diff(dim=-1) <= 0).all()
    assert (make(problem, "constant")["x"].diff(dim=-1) == 0).all()
    assert max(len(row.unique()) for row in make(problem, "ties")["x"]) == 8


def test_sizes() -> None:
    """Tiny, large, shifted, and one huge element in every row."""
    problem = problem_of("scale")
    assert make(problem, "tiny")["x"].abs().max() < 1e-3
    assert make(problem, "large")["x"].abs().median() > 100
    shifted = make(problem, "offset")["x"]
    assert (shifted.mean(dim=-1) > 10 * shifted.std(dim=-1)).all()
    outlier = make(problem, "outlier")["x"].abs()
    assert int((outlier > 8).sum(dim=-1).max()) == 1
    assert int((outlier > 8).sum()) > 200  # of 256 rows: a few draws are too small to show


def test_promised_specials() -> None:
    """NaN in one element, both infinities, a tenth denormal, a tenth -0.0."""
    problem = problem_of("scale")
    assert int(make(problem, "nan")["x"].isnan().sum()) == 1
    infinite = make(problem, "inf")["x"]
    assert set(infinite[infinite.isinf()].tolist()) <= {torch.inf, -torch.inf}
    assert 1 <= int(infinite.isinf().sum()) <= 2
    small = make(problem, "denormal")["x"].abs()
    assert (
        0.05
        < float(((small > 0) & (small < torch.finfo(torch.float32).smallest_normal)).float().mean())
        < 0.2
    )
    zeros = make(problem, "negative_zero")["x"]
    assert 0.05 < float(((zeros == 0) & zeros.signbit()).float().mean()) < 0.2


def test_what_is_left_alone() -> None:
    """Masks, operands that are written, and those that the task keeps are as the task made them."""
    assert [o.name for o in changes(problem_of("masked_scale"))] == ["x"]
    assert [o.name for o in changes(problem_of("axpy"))] == ["x"]
    assert [o.name for o in changes(problem_of("matmul", keep=("b",)))] == ["a"]
    assert make(problem_of("matmul", keep=("b",)), "large")["b"].abs().max() < 10
