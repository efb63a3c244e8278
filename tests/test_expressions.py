"""Arithmetic from task files: only what it says, and nothing that could run."""

from __future__ import annotations

import pytest

from harness.expressions import evaluate

DIMS = {"rows": 7, "cols": 10}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("rows", 7),
        ("12", 12),
        ("2 * cols", 20),
        ("rows * (cols + 1)", 77),
        ("cols - rows - 1", 2),
        ("cols // 3", 3),
        ("cols % 3", 1),
        ("rows * cols // 2 + 1", 36),
    ],
)
def test_value(expression: str, value: int) -> None:
    """Integers, dims and + - * // % are evaluated as Python does."""
    assert evaluate(expression, DIMS) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "rows +",
        "rows / 2",
        "rows ** 2",
        "2 << 9",
        "-rows",
        "1.5",
        "True",
        "'a'",
        "rows if rows else cols",
        "rows.real",
        "rows[0]",
        "max(rows, cols)",
        "__import__('os').getpid()",
        "(rows := 3)",
        "lambda: 1",
    ],
)
def test_refused(expression: str) -> None:
    """Anything else is refused by name; nothing is executed."""
    with pytest.raises(ValueError):
        evaluate(expression, DIMS)


def test_unknown_dim() -> None:
    """An unknown name is answered with those that are known."""
    with pytest.raises(ValueError, match="unknown dim 'depth'; known: cols, rows"):
        evaluate("depth * 2", DIMS)


def test_division_by_zero() -> None:
    """Dividing by a dim that is 0 is an error of the expression."""
    with pytest.raises(ValueError, match="divides by zero"):
        evaluate("rows // zero", {**DIMS, "zero": 0})
