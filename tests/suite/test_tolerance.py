"""The numbers that outputs are held to."""

from __future__ import annotations

import math

import pytest

from harness.records import Operand, Task
from harness.suite.tolerance import factor, tolerance
from tests.fakes.overlays import throw_away_task


def task_of(**changes: object) -> Task:
    """`scale`, changed."""
    return throw_away_task("scale").task.model_copy(update=changes)


@pytest.mark.parametrize(
    ("kind", "precision", "expected"),
    [
        ("elementwise", "strict", 1e-5),
        ("reduction", "strict", 1e-4),
        ("contraction", "strict", 1e-4),
        ("contraction", "tf32", 1e-3),
        ("exact", "tf32", 0.0),
    ],
)
def test_float32_lanes(kind: str, precision: str, expected: float) -> None:
    """float32 is strict but where the task allows TF32."""
    assert factor(task_of(tolerance=kind, precision=precision), "float32") == expected
    if kind != "exact":
        with pytest.raises(ValueError, match="no tolerance is defined for dtype complex64"):
            factor(task_of(tolerance=kind), "complex64")


@pytest.mark.parametrize(("dtype", "f", "cap"), [("float16", 1e-3, 1e-2), ("bfloat16", 8e-3, 1.6e-2)])
def test_half_precision_is_capped(dtype: str, f: float, cap: float) -> None:
    """A 16-bit output is allowed four times PyTorch's own error up to the cap, beyond that no more than
    PyTorch's, and never more than four caps."""
    task = task_of()
    rule = tolerance(task, task.outputs[0], dtype)
    assert (rule.f, rule.cap, rule.matched) == (f, cap, 1.0)
    errors = [rule.allowed(own * cap / f) * f / cap for own in (0.25, 0.5, 1.0, 1.5, 4.0, 1e9)]
    assert errors == pytest.approx([1.0, 1.0, 1.0, 1.5, 4.0, 4.0])


def test_allowed_error() -> None:
    """Four times PyTorch's own error where that is above 1; a reference that is no number allows nothing."""
    task = task_of()
    rule = tolerance(task, task.outputs[0], "float32")
    assert [rule.allowed(own) for own in (0.0, 0.25, 2.0, math.inf, math.nan)] == [1.0, 1.0, 8.0, 1.0, 1.0]


def test_eight_bit_inputs_have_a_rule_of_their_own() -> None:
    """With 8-bit inputs 99 % must match, none beyond 5 times, whatever the output's dtype."""
    task = task_of()
    output = Operand(name="out", role="out", shape=("rows",), dtype="bfloat16")
    rule = tolerance(task, output, "float8_e4m3fn")
    assert (rule.f, rule.matched, rule.most) == (8e-3, 0.99, 5.0)
    assert tolerance(task, output, "float32").matched == 1.0
