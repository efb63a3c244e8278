"""Answers that take no work, and whether a task's check lets one pass.

An answer is judged as a project's outputs are, on fresh inputs, with the truth computed from those. One
reference is computed for each answer that needs one; nothing is built and no worker starts.
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
"""Two steps down: float32 past tf32 to bfloat16, 16 bits past e4m3 to e5m2, whose exponents reach as far."""


@dataclass(frozen=True)
class Answer:
    """Outputs that nobody computed from all of the inputs in the precision that is asked for."""

    what: str
    """`zeros`, `ones`, `mean`, `x as it is`, `ignores x`, `other inputs`, `inputs in bfloat16`."""
    outputs: Outputs


def own_outputs(problem: Problem, inputs: Tensors) -> Outputs:
    """The reference's outputs as a project would leave them: in the dtypes of its operands."""
    found = problem.reference(inputs)
    return tuple(
        value.to(problem.operand_dtype(operand))
        for value, operand in zip(found, problem.task.outputs, strict=True)
    )


def answers(problem: Problem, inputs: Tensors, right: Outputs) -> Iterator[Answer]:
    """All that apply to `inputs`, whose right outputs are `right`.

    An input passes for an output where it has as many elements; operands that are read and written are
    inputs too: what they hold before the call must not do.
    """
    yield Answer("zeros", tuple(torch.zeros_like(one) for one in right))
    yield Answer("ones", tuple(torch.ones_like(one) for one in right))
    yield Answer("mean", tuple(_mean(one) for one in right))
    other = problem.make_inputs()
    others = own_outputs(problem, other)
    yield Answer("other inputs", others)
    yield from _partly_bad(problem, right, others)
    for name, value in inputs.items():
        if all(value.numel() == one.numel() for one in right):
            as_is = tuple(value.reshape(one.shape).to(one.dtype) for one in right)
            yield Answer(f"{name} as it is", as_is)
        changed = other[name] if not torch.equal(other[name], value) else torch.zeros_like(value)
        if not torch.equal(changed, value):
            yield Answer(f"ignores {name}", own_outputs(problem, {**inputs, name: changed}))
    own = torch_dtype(problem.dtype)
    lower = COARSE.get(own)
    if lower is not None and any(value.dtype == own for value in inputs.values()):
        # Only operands of the workload's dtype: a float32 table beside bfloat16 values may well be rounded.
        coarse = {n: v.to(lower).to(own) if v.dtype == own else v for n, v in inputs.items()}
        yield Answer(f"inputs in {str(lower).removeprefix('torch.')}", own_outputs(problem, coarse))


def _partly_bad(problem: Problem, right: Outputs, others: Outputs) -> Iterator[Answer]:
    """Every combination of good and bad outputs, for each way in which an output can be bad."""
    names = [operand.name for operand in problem.task.outputs]
    bad = [_bad(value, other) for value, other in zip(right, others, strict=True)]
    for kind in sorted({kind for one in bad for kind in one}):
        for mask in itertools.product((False, True), repeat=len(right)):
            chosen = [i for i, is_bad in enumerate(mask) if is_bad and kind in bad[i]]
            if chosen and len(chosen) == sum(mask):
                outputs = tuple(bad[i][kind] if i in chosen else one for i, one in enumerate(right))
                yield Answer(f"{kind} for {' and '.join(names[i] for i in chosen)}", outputs)


def _bad(value: torch.Tensor, other: torch.Tensor) -> dict[str, torch.Tensor]:
    """Ways in which one output can be bad, without those that it happens to be anyway."""
    found = {"zeros": torch.zeros_like(value), "values of other inputs": other}
    if value.is_floating_point() and value.numel():
        one = value.clone()
        one.view(-1)[int(torch.randint(value.numel(), ()))] = math.nan
        found |= {"NaN": torch.full_like(value, math.nan), "one NaN": one}
        if value.dtype != torch.float8_e4m3fn:  # which has no infinity
            found["infinities"] = torch.full_like(value, math.inf)
    return {kind: made for kind, made in found.items() if not _same(made, value)}


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bytes, but for the order of NaN."""
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def _mean(values: torch.Tensor) -> torch.Tensor:
    if not values.numel():
        return values
    mean = float(values.double().mean())
    return torch.full_like(values, mean if values.is_floating_point() else round(mean))


def passing(problem: Problem) -> list[str]:
    """Names of the answers that the check lets pass on fresh inputs of `problem`; should be empty.

    Raises HarnessBug for a broken reference.py, RuntimeError where PyTorch has no such op for the dtype here.
    """
    inputs = problem.make_inputs()
    right = own_outputs(problem, inputs)
    return [
        answer.what
        for answer in answers(problem, inputs, right)
        if Verifier(problem).values(inputs, answer.outputs) is None
    ]


def reference_fails(problem: Problem) -> str | None:
    """What the check says against the reference's own outputs; None where they pass, as they should."""
    inputs = problem.make_inputs()
    finding = Verifier(problem).values(inputs, own_outputs(problem, inputs))
    return None if finding is None else finding.message
