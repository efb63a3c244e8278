"""Arithmetic from task files: only what it says, and nothing that could run."""

from __future__ import annotations

import pytest

from harness.expressions import evaluate

DIMS = {"rows": 7, "cols": 10}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("12", 12),
        ("rows * (cols + 1)", 77),
        ("cols - rows - cols % 3", 2),
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
        "rows / 2",
        "rows ** 2",
        "-rows",
        "1.5",
        "True",
        "rows.real",
        "max(rows, cols)",
        "__import__('os').getpid()",
    ],
)
def test_refused(expression: str) -> None:
    """Anything else is refused by name; nothing is executed."""
    with pytest.raises(ValueError):
        evaluate(expression, DIMS)


def test_what_cannot_be_evaluated_is_named() -> None:
    """An unknown name is answered with those that are known; a dim that is 0 divides nothing."""
    with pytest.raises(ValueError, match="unknown dim 'depth'; known: cols, rows"):
        evaluate("depth * 2", DIMS)
    with pytest.raises(ValueError, match="divides by zero"):
        evaluate("rows // zero", {**DIMS, "zero": 0})
