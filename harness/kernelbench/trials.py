"""What small runs on the CPU show of a problem: whether its rows are apart, and whether its values are fair.

Runs where problem files are executed (isolated.py). The judge repeats the proof of rows before it relies on
it.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from harness.judge.rows import ROWS, treats_rows_apart
from harness.kernelbench.adapter import load_problem
from harness.kernelbench.conversion import reference_py
from harness.kernelbench.facts import ProblemFacts, RowFacts

_LIGHT = (1 << 20, 1e8)
"""(elements, operations) of a row that is cheap enough for the whole proof."""
_MOST = (1 << 25, 1e9)
"""Of a row that is tried at all: else the judge's proof, on its device, is the first."""
_SMALL_ELEMENTS = 1 << 22
_CLOSE = 1e-5


class _Public:
    """Draws from PyTorch's generator: nothing has to be secret here, and it is ten times as fast."""

    device = torch.device("cpu")

    def uniform(self, shape: Any, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        return torch.rand(tuple(shape)).mul_(high - low).add_(low)

    def normal(self, shape: Any) -> torch.Tensor:
        return torch.randn(tuple(shape))

    def integers(self, shape: Any, low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, tuple(shape))


class _Draws:
    """The module of a converted problem, on the CPU."""

    def __init__(self, source: str, facts: ProblemFacts) -> None:
        self._module: Any = load_problem(reference_py(source, facts), "kernelbench_problem_tried")
        self._scalars = {one.name: one.value for one in facts.scalars}

    def draw(self, rows: int | None, *, wide: bool = False) -> dict[str, torch.Tensor]:
        """Operands in float32."""
        drawn: dict[str, torch.Tensor] = self._module.draw(_Public(), torch.float32, rows, wide=wide)
        return drawn

    def truth(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Outputs in float64."""
        cast = {n: v.double() if v.is_floating_point() else v for n, v in inputs.items()}
        outputs: tuple[torch.Tensor, ...] = self._module.truth({**cast, **self._scalars})
        return outputs


def with_trials(source: str, facts: ProblemFacts) -> ProblemFacts:
    """The facts, and what small runs add to them. Executes the problem."""
    if facts.draws or facts.writes:
        return facts
    rows = facts.rows
    with torch.no_grad():
        if rows is not None:
            rows = rows.model_copy(update={"apart": _apart(source, facts, rows)})
        return facts.model_copy(update={"rows": rows, "wide": _needs_wide(source, facts)})


def _apart(source: str, facts: ProblemFacts, rows: RowFacts) -> bool | None:
    """None where it is not tried."""
    if len(rows.outputs) != len(facts.outputs) or any(len(t.shape) < 2 for t in facts.outputs):
        return False
    if not _within(facts, rows, _MOST):
        return None
    few, draws = (min(ROWS, rows.rows), 3) if _within(facts, rows, _LIGHT) else (2, 1)
    tried = _Draws(source, facts)
    return treats_rows_apart(tried.draw, tried.truth, rows.inputs, few, draws)


def _within(facts: ProblemFacts, rows: RowFacts, limit: tuple[int, float]) -> bool:
    tensors = (*facts.inputs, *facts.parameters, *facts.outputs)
    elements = sum(math.prod(t.shape) // (rows.rows if facts.scales(t) else 1) for t in tensors)
    elements += rows.peak_bytes // 4
    return elements <= limit[0] and rows.flops <= limit[1]


def _needs_wide(source: str, facts: ProblemFacts) -> bool:
    """Whether an operand passes for an output, but not where inputs take both signs and larger values."""
    if not {t.shape for t in facts.inputs} & {t.shape for t in facts.outputs}:
        return False
    few = None if facts.rows is None else min(2, facts.rows.rows)
    elements = sum(math.prod(t.shape) for t in (*facts.inputs, *facts.parameters, *facts.outputs))
    small = elements <= _SMALL_ELEMENTS and facts.flops <= _LIGHT[1]
    if not (small if facts.rows is None else _within(facts, facts.rows, _MOST)):
        return False
    tried = _Draws(source, facts)
    return _is_an_operand(tried, few, wide=False) and not _is_an_operand(tried, few, wide=True)


def _is_an_operand(tried: _Draws, rows: int | None, *, wide: bool) -> bool:
    """Whether any output equals an operand, on one draw."""
    inputs = tried.draw(rows, wide=wide)
    return any(
        value.shape == out.shape and torch.allclose(value.double(), out.double(), rtol=_CLOSE, atol=_CLOSE)
        for out in tried.truth(inputs)
        for value in inputs.values()
    )
