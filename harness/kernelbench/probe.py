"""What a converted task is worth: answers that take no work, run against the judge's own comparison.

What passes here would pass the judge: same inputs, same truth, same tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from harness.judge.compare import compare, passes, worst_error
from harness.judge.problem import Problem, Tensors
from harness.records import Target
from harness.suite.catalogue import load_task
from harness.suite.tolerance import tolerance

Outputs = tuple[torch.Tensor, ...]


class _Values:
    """One draw of the operands, the truth, and what PyTorch makes of it."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.inputs: Tensors = problem.make_inputs()
        self.truth = problem.truth(self.inputs)

    def reference(self) -> Outputs:
        """In float32."""
        return self._problem.reference(self.inputs)


def probe_task(
    folder: str, target: Target, device: str = "cpu", rows: int | None = None
) -> dict[str, list[str]]:
    """`reasons` why the task is no fair one on `target`, of those that need values.

    `rows`: looked at with so many instead of the workload's own.
    """
    loaded = load_task(Path(folder))
    (workload,) = loaded.task.workloads_for(target)
    if rows is not None:
        workload = workload.model_copy(update={"dims": {"rows": rows}})
    problem = Problem(loaded, workload, "float32", device=torch.device(device))
    with torch.no_grad():
        return {"reasons": list(_reasons(problem, _Values(problem), _Values(problem)))}


def _reasons(problem: Problem, one: _Values, other: _Values) -> Iterator[str]:
    first = one.reference()
    if not all(bool(t.isfinite().all()) for t in (*one.truth, *first) if t.is_floating_point()):
        yield "its outputs are not all finite"
        return
    other.reference()
    if not _answers(problem, one, first, one.reference()):
        yield "two calls on equal operands differ"
        return
    if not _answers(problem, one, first, first):
        yield "PyTorch in float32 does not pass its own tolerance"
    if all(t.numel() > 1 and bool((t == t.reshape(-1)[0]).all()) for t in one.truth) and _answers(
        problem, one, first, tuple(t.float() for t in other.truth)
    ):
        yield "its output is constant"
        return
    passed = [name for name, answer in _trivial(problem, one, other) if _answers(problem, one, first, answer)]
    if passed:
        yield f"an answer without work passes: {', '.join(passed)}"


def _trivial(problem: Problem, one: _Values, other: _Values) -> Iterator[tuple[str, Outputs]]:
    """Answers of the right shape, by name."""
    dtypes = [problem.operand_dtype(o) for o in problem.task.outputs]

    def cast(answer: Any) -> Outputs:
        return tuple(answer(t).to(d).contiguous() for t, d in zip(one.truth, dtypes, strict=True))

    yield "zeros", cast(torch.zeros_like)
    yield "ones", cast(torch.ones_like)
    for name, value in one.inputs.items():
        if all(t.shape == value.shape for t in one.truth):
            yield f"the operand {name}", cast(lambda t, value=value: value)
    means = iter([t.double().mean() for t in other.truth])
    yield "the mean of another output", cast(lambda t: torch.full_like(t, float(next(means))))
    theirs = iter(other.truth)
    yield "the output of other inputs", cast(lambda t: next(theirs))


def _answers(problem: Problem, values: _Values, own: Outputs, answer: Outputs) -> bool:
    """Whether the judge would take `answer` for the outputs; `own` is PyTorch's."""
    for operand, truth, theirs, ours in zip(problem.task.outputs, values.truth, answer, own, strict=True):
        rule = tolerance(problem.task, operand, "float32")
        allowed = rule.allowed(worst_error(ours, truth, rule.f, None))
        if not passes(compare(theirs, truth, rule.f, allowed, None), allowed, rule):
            return False
    return True
