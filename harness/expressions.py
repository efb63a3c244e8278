"""Integer arithmetic over a workload's dims, as in task.toml ("2 * cols", "rows * (cols + 1)")."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluate(expression: str, dims: Mapping[str, int]) -> int:
    """Value of an expression of + - * // %, integers and dims. Raises ValueError for anything else."""
    try:
        tree = ast.parse(expression, mode="eval")
        return _value(tree.body, dims, expression)
    except (SyntaxError, RecursionError) as error:
        raise ValueError(f"{expression!r} is not an arithmetic expression") from error
    except ZeroDivisionError as error:
        raise ValueError(f"{expression!r} divides by zero") from error


def _value(node: ast.expr, dims: Mapping[str, int], text: str) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in dims:
            raise ValueError(f"{text!r}: unknown dim {node.id!r}; known: {', '.join(sorted(dims))}")
        return dims[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        operation = _OPERATIONS[type(node.op)]
        return operation(_value(node.left, dims, text), _value(node.right, dims, text))
    raise ValueError(f"{text!r}: only + - * // %, integers and dims are allowed")
