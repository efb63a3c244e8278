"""What a problem's values show: whether its rows are independent, and whether a check of it is fair.

Executes problem files, so it runs in the helper processes of `isolation` only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # loaded at the first operator, which takes a second: here once, before any fork

from harness.judge.compare import compare, passes, worst_error
from harness.judge.problem import ROWS, Outputs, Problem, treats_rows_apart
from harness.judge.trivial_answers import own_outputs, without_work
from harness.kernelbench.adapter import load_problem
from harness.kernelbench.conversion import reference_py
from harness.kernelbench.inspection import PublicGenerator, inspect_problem
from harness.kernelbench.problems import ProblemFacts, RowFacts
from harness.records import Target
from harness.suite.catalogue import load_task
from harness.suite.tolerance import tolerance

_LIGHT = (1 << 20, 1e8)
"""Elements and operations of a row up to which the whole proof of independence is tried."""
_MOST = (1 << 25, 1e9)
"""Up to which it is tried at all. The judge repeats the proof on its device before it relies on it."""
_SMALL_ELEMENTS = 1 << 22
_CLOSE = 1e-5


def inspect(path: str) -> dict[str, Any]:
    """The facts of a problem file, with what trials on small inputs add."""
    source = Path(path).read_text()
    return _with_trials(source, inspect_problem(source)).model_dump(mode="json")


def probe(folder: str, target: Target, device: str = "cpu", rows: int | None = None) -> list[str]:
    """Reasons that need values why a converted task is not fair on `target`.

    `rows`: rows to try it with instead of the workload's own.
    """
    loaded = load_task(Path(folder))
    (workload,) = loaded.task.workloads_for(target)
    if rows is not None:
        workload = workload.model_copy(update={"dims": {"rows": rows}})
    problem = Problem(loaded, workload, "float32", device=torch.device(device))
    with torch.no_grad():
        return list(_unfair(problem))


class _Converted:
    """A converted problem on the CPU."""

    def __init__(self, source: str, facts: ProblemFacts) -> None:
        self._module: Any = load_problem(reference_py(source, facts), "kernelbench_problem_tried")
        self._scalars = {one.name: one.value for one in facts.scalars}

    def draw(self, rows: int | None, *, wide: bool = False) -> dict[str, torch.Tensor]:
        """Operands in float32."""
        drawn: dict[str, torch.Tensor] = self._module.draw(
            PublicGenerator("cpu"), torch.float32, rows, wide=wide
        )
        return drawn

    def truth(self, inputs: dict[str, torch.Tensor]) -> Outputs:
        """Outputs in float64."""
        cast = {n: v.double() if v.is_floating_point() else v for n, v in inputs.items()}
        outputs: Outputs = self._module.truth({**cast, **self._scalars})
        return outputs

    def returns_an_operand(self, rows: int | None, *, wide: bool) -> bool:
        """Whether an output equals an operand on one draw."""
        inputs = self.draw(rows, wide=wide)
        return any(
            value.shape == out.shape
            and torch.allclose(value.double(), out.double(), rtol=_CLOSE, atol=_CLOSE)
            for out in self.truth(inputs)
            for value in inputs.values()
        )


def _with_trials(source: str, facts: ProblemFacts) -> ProblemFacts:
    if facts.draws or facts.writes:
        return facts
    rows = facts.rows
    with torch.no_grad():
        if rows is not None:
            rows = rows.model_copy(update={"apart": _rows_apart(source, facts, rows)})
        return facts.model_copy(update={"rows": rows, "wide": _needs_wide_inputs(source, facts)})


def _rows_apart(source: str, facts: ProblemFacts, rows: RowFacts) -> bool | None:
    """Whether each output row depends on its input row alone; None if that is too much work to try."""
    if len(rows.outputs) != len(facts.outputs) or any(len(t.shape) < 2 for t in facts.outputs):
        return False
    if not _within(facts, rows, _MOST):
        return None
    few, draws = (min(ROWS, rows.rows), 3) if _within(facts, rows, _LIGHT) else (2, 1)
    tried = _Converted(source, facts)
    return treats_rows_apart(tried.draw, tried.truth, rows.inputs, few, draws)


def _within(facts: ProblemFacts, rows: RowFacts, limit: tuple[int, float]) -> bool:
    elements = sum(math.prod(t.shape) // (rows.rows if facts.scales(t) else 1) for t in facts.tensors)
    return elements + rows.peak_bytes // 4 <= limit[0] and rows.flops <= limit[1]


def _needs_wide_inputs(source: str, facts: ProblemFacts) -> bool:
    """Whether an operand passes as output on the problem's inputs, but not on larger ones of both signs."""
    if not {t.shape for t in facts.inputs} & {t.shape for t in facts.outputs}:
        return False
    if facts.rows is not None:
        small, few = _within(facts, facts.rows, _MOST), min(2, facts.rows.rows)
    else:
        elements = sum(math.prod(t.shape) for t in facts.tensors)
        small, few = elements <= _SMALL_ELEMENTS and facts.flops <= _LIGHT[1], None
    if not small:
        return False
    tried = _Converted(source, facts)
    return tried.returns_an_operand(few, wide=False) and not tried.returns_an_operand(few, wide=True)


def _unfair(problem: Problem) -> Iterator[str]:
    inputs, other_inputs = problem.make_inputs(), problem.make_inputs()
    truth, first = problem.truth(inputs), own_outputs(problem, inputs)

    def passing(answer: Outputs) -> bool:
        """Whether the judge would accept it."""
        for operand, expected, theirs, ours in zip(problem.task.outputs, truth, answer, first, strict=True):
            rule = tolerance(problem.task, operand, "float32")
            allowed = rule.allowed(worst_error(ours, expected, rule.f, None))
            if not passes(compare(theirs, expected, rule.f, allowed, None), allowed, rule):
                return False
        return True

    if not all(bool(t.isfinite().all()) for t in (*truth, *first) if t.is_floating_point()):
        yield "its outputs are not all finite"
        return
    other = own_outputs(problem, other_inputs)  # this must not change the next call's outputs
    if not passing(own_outputs(problem, inputs)):
        yield "two calls on equal operands differ"
        return
    if not passing(first):
        yield "PyTorch in float32 does not pass its own tolerance"
    if all(t.numel() > 1 and bool((t == t.reshape(-1)[0]).all()) for t in truth) and passing(other):
        yield "its output is constant"
        return
    found = (one.what for one in without_work(problem, inputs, first, other) if passing(one.outputs))
    if trivial := next(found, None):
        yield f"an answer without work passes: {trivial}"
