"""Trivial answers (zeros, an input, ignored or coarse inputs), tried against a task's check.

Answers are judged as a project's outputs are, on fresh inputs; nothing is built and no worker starts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

from harness.judge.problem import Outputs, Problem, Tensors, torch_dtype
from harness.judge.verifier import Verifier

COARSE: Mapping[torch.dtype, torch.dtype] = {
    torch.float32: torch.bfloat16,
    torch.float16: torch.float8_e5m2,
    torch.bfloat16: torch.float8_e5m2,
}
"""Two steps coarser: float32 to bfloat16 (past tf32), 16 bits to e5m2 (past e4m3), which has the range."""


@dataclass(frozen=True)
class Answer:
    """Outputs that do not come from all of the inputs in full precision."""

    what: str
    """`zeros`, `ones`, `mean`, `x as it is`, `ignores x`, `other inputs`, `inputs in bfloat16`."""
    outputs: Outputs


def own_outputs(problem: Problem, inputs: Tensors) -> Outputs:
    """The reference's outputs in the dtypes of the operands, as a project would write them."""
    found = problem.reference(inputs)
    return tuple(
        value.to(problem.operand_dtype(operand))
        for value, operand in zip(found, problem.task.outputs, strict=True)
    )


def without_work(problem: Problem, inputs: Tensors, right: Outputs, other: Outputs) -> Iterator[Answer]:
    """Answers that compute nothing, where `right` are the outputs and `other` are those of other inputs.

    An input serves as an output where it has as many elements; so do `inout` operands before the call.
    """
    yield Answer("zeros", tuple(torch.zeros_like(one) for one in right))
    yield Answer("ones", tuple(torch.ones_like(one) for one in right))
    yield Answer("mean", tuple(_mean(one) for one in other))
    yield Answer("other inputs", other)
    yield from _partly_bad(problem, right, other)
    for name, value in inputs.items():
        if all(value.numel() == one.numel() for one in right):
            as_is = tuple(value.reshape(one.shape).to(one.dtype) for one in right)
            yield Answer(f"{name} as it is", as_is)


def answers(problem: Problem, inputs: Tensors, right: Outputs) -> Iterator[Answer]:
    """All trivial answers: without work, with an input ignored, and with inputs of too few bits."""
    other = problem.make_inputs()
    yield from without_work(problem, inputs, right, own_outputs(problem, other))
    for name, value in inputs.items():
        changed = other[name] if not torch.equal(other[name], value) else torch.zeros_like(value)
        if not torch.equal(changed, value):
            yield Answer(f"ignores {name}", own_outputs(problem, {**inputs, name: changed}))
    own = torch_dtype(problem.dtype)
    lower = COARSE.get(own)
    if lower is not None and any(value.dtype == own for value in inputs.values()):
        # Only operands of the workload's dtype: rounding a float32 table beside bfloat16 values may be right.
        coarse = {n: v.to(lower).to(own) if v.dtype == own else v for n, v in inputs.items()}
        yield Answer(f"inputs in {str(lower).removeprefix('torch.')}", own_outputs(problem, coarse))


def _partly_bad(problem: Problem, right: Outputs, others: Outputs) -> Iterator[Answer]:
    """Every combination of right and bad outputs, for each kind of bad output."""
    names = [operand.name for operand in problem.task.outputs]
    bad = [_bad(value, other) for value, other in zip(right, others, strict=True)]
    for kind in sorted({kind for one in bad for kind in one}):
        for mask in itertools.product((False, True), repeat=len(right)):
            chosen = [i for i, is_bad in enumerate(mask) if is_bad and kind in bad[i]]
            if chosen and len(chosen) == sum(mask):
                outputs = tuple(bad[i][kind] if i in chosen else one for i, one in enumerate(right))
                yield Answer(f"{kind} for {' and '.join(names[i] for i in chosen)}", outputs)


def _bad(value: torch.Tensor, other: torch.Tensor) -> dict[str, torch.Tensor]:
    found = {"zeros": torch.zeros_like(value), "values of other inputs": other}
    if value.is_floating_point() and value.numel():
        one = value.clone(memory_format=torch.contiguous_format)
        one.view(-1)[int(torch.randint(value.numel(), ()))] = math.nan
        found |= {"NaN": torch.full_like(value, math.nan), "one NaN": one}
        if value.dtype != torch.float8_e4m3fn:  # which has no infinity
            found["infinities"] = torch.full_like(value, math.inf)
    own = value.reshape(-1).view(torch.uint8)
    return {kind: x for kind, x in found.items() if not torch.equal(x.reshape(-1).view(torch.uint8), own)}


def _mean(values: torch.Tensor) -> torch.Tensor:
    if not values.numel():
        return values
    mean = float(values.double().mean())
    return torch.full_like(values, mean if values.is_floating_point() else round(mean))


def passing(problem: Problem) -> list[str]:
    """Trivial answers that pass the check on fresh inputs of `problem`; a sound task has none.

    Raises HarnessBug for a broken reference.py, RuntimeError where PyTorch lacks the op for the dtype.
    """
    inputs = problem.make_inputs()
    right = own_outputs(problem, inputs)
    return [
        answer.what
        for answer in answers(problem, inputs, right)
        if Verifier(problem).values(inputs, answer.outputs) is None
    ]


def reference_fails(problem: Problem) -> str | None:
    """The check's message for the reference's own outputs; None where they pass."""
    inputs = problem.make_inputs()
    finding = Verifier(problem).values(inputs, own_outputs(problem, inputs))
    return None if finding is None else finding.message
