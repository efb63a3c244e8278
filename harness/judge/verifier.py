"""Compares the outputs of calls on one problem with the truth; what is wrong is a finding.

Truth is computed after the outputs were taken; PyTorch's own error can raise the allowed error, never lower
it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from harness.judge.adversarial import INTEGERS, OWN, unfit
from harness.judge.compare import (
    Error,
    compare,
    compared_outputs,
    element_errors,
    passes,
    sampled_rows,
    surely_passes,
    worst_error,
)
from harness.judge.guarded_buffers import SetResult
from harness.judge.problem import DEVICE_ERRORS, Outputs, Problem, Tensors
from harness.outcome import Cause
from harness.records import Finding, WorkloadCheck
from harness.records.task import Arrangement
from harness.suite.tolerance import Tolerance, tolerance

REPEATS = 3
_NOT_FINITE = ("nan", "inf")


@dataclass(frozen=True)
class Case:
    problem: Problem
    values: str = OWN
    layout: Arrangement = "contiguous"
    repeats: int = REPEATS
    """Calls on the first inputs, over different poison, one of them after all others."""
    seeds: int = 1
    """Calls on fresh inputs in between."""

    @property
    def label(self) -> str:
        words = [self.problem.label]
        if self.problem.hidden:
            words[0] += f" ({' '.join(f'{k}={v}' for k, v in self.problem.workload.dims.items())})"
        if self.values != OWN:
            words.append(f"values {self.values}")
        if self.layout != "contiguous":
            words.append(self.layout)
        return ", ".join(words)


class Verifier:
    def __init__(self, problem: Problem, case: Case | None = None, *, timed: bool = False) -> None:
        """`case` (default: the task's own values, contiguous); `timed`: of a large problem a sample is
        compared, and the error of what surely passes is not kept."""
        self._timed, self._problem = timed, problem
        self._case = Case(problem) if case is None else case
        self._rows: tuple[int, int] | None = None
        self.calls = 0
        self.worst: float | None = None
        self.allowed: float | None = None
        self.worst_absolute: float | None = None
        self._where: tuple[str, tuple[int, ...]] | None = None
        self._skipped: str | None = None

    def integrity(self, result: SetResult) -> Finding | None:
        if result.changed_inputs:
            written = ", ".join(result.changed_inputs)
            return self._finding(f"wrote to {written}, which is read only", Cause.MUTATED_INPUT)
        if result.changed_guards:
            return self._finding(f"wrote outside of {', '.join(result.changed_guards)}", Cause.WROTE_OUTSIDE)
        return None

    def values(self, inputs: Tensors, outputs: Outputs) -> Finding | None:
        self.calls += 1
        problem, kind = self._problem, self._case.values
        if problem.large:
            return self._in_parts(inputs, outputs)
        truths = problem.truth(inputs)
        if kind not in (OWN, *_NOT_FINITE):
            self._skipped = unfit(problem, truths)
            if self._skipped is not None:
                return None
        if kind == INTEGERS:
            return self._exact(outputs, truths)
        if problem.custom_compare is not None:
            return self._custom(inputs, outputs, truths)
        every = zip(problem.task.outputs, outputs, truths, problem.scales(inputs), strict=True)
        for index, (operand, actual, truth, scale) in enumerate(every):
            rule = tolerance(problem.task, operand, problem.dtype)
            if self._timed and scale is None and surely_passes(actual, truth, rule.f):
                continue
            allowed = 1.0
            error = compare(actual, truth, rule.f, allowed, scale)
            if error.over:
                # Only now the reference's own error matters.
                own = worst_error(problem.reference(inputs)[index], truth, rule.f, scale)
                allowed = rule.allowed(own)
                error = compare(actual, truth, rule.f, allowed, scale)
            self._remember(error, allowed)
            if not passes(error, allowed, rule):
                return self._wrong(operand.name, error, allowed, rule)
        return None

    def _in_parts(self, inputs: Tensors, outputs: Outputs) -> Finding | None:
        if self._problem.rows_apart:
            self._rows = sampled_rows(self._problem, timed=self._timed)
        every = compared_outputs(self._problem, inputs, outputs, timed=self._timed)
        for operand, error, allowed, rule in every:
            self._remember(error, allowed)
            if not passes(error, allowed, rule):
                return self._wrong(operand.name, error, allowed, rule)
        return None

    def _exact(self, outputs: Outputs, truths: Outputs) -> Finding | None:
        """Integer inputs: all sums are representable, so at most one rounding may differ."""
        for operand, actual, truth in zip(self._problem.task.outputs, outputs, truths, strict=True):
            expected = truth.to(self._problem.operand_dtype(operand))
            error = compare(actual, expected.double() if truth.is_floating_point() else expected, 0.0, 1.0)
            self._remember(error, 1.0)
            if not passes(error, 1.0):
                return self._wrong(operand.name, error, 1.0, Tolerance(0.0))
        return None

    def _custom(self, inputs: Tensors, outputs: Outputs, truths: Outputs) -> Finding | None:
        finding = self._not_finite(outputs, truths)
        if finding is not None:
            return finding
        try:
            worst = float(self._problem.custom_compare(outputs, truths, inputs))
        except DEVICE_ERRORS:
            raise
        except (IndexError, RuntimeError, ValueError) as error:
            # Outputs are a student's: an index out of range must not become our failure.
            return self._finding(f"the task's own measure cannot use the outputs: {error}")
        worst = math.inf if math.isnan(worst) else worst
        self._remember(Error(worst, 0.0, 0, 0, 0.0, ()), 1.0)
        said = f"{worst:.3g} times the allowed error, by the task's own measure"
        return None if worst <= 1.0 else self._finding(said)

    def _remember(self, error: Error, allowed: float) -> None:
        if math.isfinite(error.worst):
            self.worst = max(self.worst or 0.0, error.worst)
            self.allowed = max(self.allowed or 0.0, allowed)
        if math.isfinite(error.absolute):
            self.worst_absolute = max(self.worst_absolute or 0.0, error.absolute)

    def _not_finite(self, outputs: Outputs, truths: Outputs) -> Finding | None:
        """NaN and infinities where the truth is finite; no task's own measure is asked about those."""
        for operand, actual, truth in zip(self._problem.task.outputs, outputs, truths, strict=True):
            wrong = truth.isfinite() & ~actual.double().isfinite()  # float8 has no isfinite
            if bool(wrong.any()):
                at = tuple(int(i) for i in wrong.nonzero()[0])
                self._where = (operand.name, at)
                count = f"{int(wrong.sum())} elements of {operand.name}"
                first = f"the first, at [{', '.join(map(str, at))}]"
                return self._finding(f"{count} are NaN or infinite where the truth is finite; {first}")
        return None

    def _wrong(self, name: str, error: Error, allowed: float, rule: Tolerance) -> Finding:
        self._where = (name, error.where)
        where = ", ".join(str(i) for i in error.where)
        if rule.f == 0:
            how = f"are not equal to the truth; the first, at [{where}]"
        else:
            ratio = error.worst / allowed
            size = "is no number" if math.isinf(error.worst) else f"is {ratio:.3g} times the allowed error"
            how = f"are out of tolerance; the worst, at [{where}], {size}"
        return self._finding(f"{error.over} of {error.total} elements of {name} {how}")

    def _finding(self, message: str, cause: Cause = Cause.WRONG_VALUES) -> Finding:
        return Finding(cause=cause, message=f"{self._case.label}: {message}")

    def record(self, finding: Finding | None) -> WorkloadCheck:
        case, workload = self._case, self._problem.workload
        return WorkloadCheck(
            workload=workload.name,
            dtype=self._problem.dtype,
            calls=self.calls,
            worst_error=self.worst,
            allowed_error=self.allowed,
            worst_absolute=self.worst_absolute,
            finding=finding,
            values=case.values,
            layout=case.layout,
            hidden=self._problem.hidden,
            dims=dict(workload.dims),
            output=self._where[0] if self._where else None,
            where=self._where[1] if self._where else None,
            skipped=self._skipped,
            rows=self._rows,
        )


def repeatable(
    label: str, first: Outputs, second: Outputs, bound: float = 0.0, *, unwritten: bool = True
) -> Finding | None:
    """Whether equal inputs gave equal bytes, or values within `bound` * (|value| + RMS of its row).
    `unwritten`: the first lay over 0xFF and the second over 0x00, so elements that differ in exactly that way
    were not written."""
    for one, two in zip(first, second, strict=True):
        width = one.dtype.itemsize
        a = one.contiguous().reshape(-1).view(torch.uint8)
        b = two.contiguous().reshape(-1).view(torch.uint8)
        if torch.equal(a, b):
            continue
        a, b = a.reshape(-1, width), b.reshape(-1, width)
        missing = int(((a == 0xFF).all(dim=1) & (b == 0x00).all(dim=1)).sum()) if unwritten else 0
        if missing:
            message = f"{label}: {missing} elements were never written"
            return Finding(cause=Cause.UNWRITTEN_OUTPUT, message=message)
        differing = int((a != b).any(dim=1).sum())
        if bound > 0 and one.is_floating_point():
            differing = int((element_errors(two, one.double(), bound) > 1.0).sum())
        if differing:
            more = f" by more than the task's bound of {bound:g}" if bound > 0 else ""
            message = f"{label}: {differing} elements differ between two calls on equal inputs{more}"
            return Finding(cause=Cause.NONDETERMINISTIC, message=message)
    return None
