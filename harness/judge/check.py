"""The check stage: is the project right on every workload?

Owns: which calls are made, and the verdict on their outputs. Does not own: error arithmetic.
Per workload and dtype three calls at the same addresses: secret inputs A over 0xFF poison, A again
over 0x00 (equal outputs prove that everything was written, and determinism), then fresh inputs B
(a replay of A is wrong). Invariant: truth is computed after the outputs were taken.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import torch

from harness.catalogue import LoadedTask
from harness.judge.arena import Arena, Layout, SetResult
from harness.judge.compare import Error, compare, passes, worst_error
from harness.judge.contender import Contender, Failed
from harness.judge.problem import Problem, Tensors
from harness.outcome import Cause
from harness.records import CheckResult, Finding, Target, WorkloadCheck
from harness.tolerance import REFERENCE_ERROR_FACTOR, factor

Outputs = tuple[torch.Tensor, ...]


def problems(loaded: LoadedTask, target: Target, *, timed_only: bool = False) -> list[Problem]:
    """All workloads of a task with all dtypes of the target."""
    task = loaded.task
    return [
        Problem(loaded, workload, dtype)
        for workload in task.workloads
        if workload.timed or not timed_only
        for dtype in task.dtypes[target]
    ]


class Verifier:
    """Compares the outputs of calls on one problem with the truth."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.calls = 0
        self.worst: float | None = None
        self.allowed: float | None = None
        self.worst_absolute: float | None = None

    def integrity(self, result: SetResult) -> Finding | None:
        """Whether a call stayed within what it may write."""
        label = self._problem.label
        if result.changed_inputs:
            names = ", ".join(result.changed_inputs)
            return Finding(
                cause=Cause.MUTATED_INPUT, message=f"{label}: wrote to {names}, which is read only"
            )
        if result.changed_guards:
            names = ", ".join(result.changed_guards)
            return Finding(cause=Cause.WROTE_OUTSIDE, message=f"{label}: wrote outside of {names}")
        return None

    def values(self, inputs: Tensors, outputs: Outputs) -> Finding | None:
        """Whether the outputs are right. Truth is computed here, after the outputs are in."""
        self.calls += 1
        problem = self._problem
        truths = problem.truth(inputs)
        if problem.custom_compare is not None:
            return self._custom(inputs, outputs, truths)
        for index, (operand, actual, truth) in enumerate(
            zip(problem.task.outputs, outputs, truths, strict=True)
        ):
            f = factor(problem.task, str(actual.dtype).removeprefix("torch."))
            allowed = 1.0
            error = compare(actual, truth, f, allowed)
            if not passes(error, allowed):
                # Only now the reference's own error matters: it can raise what is allowed, never lower it.
                allowed = self._allowed(problem.reference(inputs)[index], truth, f)
                error = compare(actual, truth, f, allowed)
            self._remember(error, allowed)
            if not passes(error, allowed):
                return self._wrong(operand.name, error, allowed)
        return None

    @staticmethod
    def _allowed(reference: torch.Tensor, truth: torch.Tensor, f: float) -> float:
        own = worst_error(reference, truth, f)
        return max(REFERENCE_ERROR_FACTOR * own, 1.0) if math.isfinite(own) else 1.0

    def _custom(self, inputs: Tensors, outputs: Outputs, truths: Outputs) -> Finding | None:
        try:
            worst = float(self._problem.custom_compare(outputs, truths, inputs))
        except (IndexError, RuntimeError, ValueError) as error:
            # Outputs are a student's: an index out of range must not become our failure.
            message = f"{self._problem.label}: the task's own measure cannot use the outputs: {error}"
            return Finding(cause=Cause.WRONG_VALUES, message=message)
        worst = math.inf if math.isnan(worst) else worst
        self._remember(Error(worst, 0.0, 0, 0, 0.0, ()), 1.0)
        if worst <= 1.0:
            return None
        return Finding(
            cause=Cause.WRONG_VALUES,
            message=f"{self._problem.label}: {worst:.3g} times the allowed error, by the task's own measure",
        )

    def _remember(self, error: Error, allowed: float) -> None:
        if math.isfinite(error.worst):
            self.worst = max(self.worst or 0.0, error.worst)
            self.allowed = max(self.allowed or 0.0, allowed)
        if math.isfinite(error.absolute):
            self.worst_absolute = max(self.worst_absolute or 0.0, error.absolute)

    def _wrong(self, name: str, error: Error, allowed: float) -> Finding:
        size = (
            "no number" if math.isinf(error.worst) else f"{error.worst / allowed:.3g} times the allowed error"
        )
        where = ", ".join(str(i) for i in error.where)
        return Finding(
            cause=Cause.WRONG_VALUES,
            message=f"{self._problem.label}: {error.over} of {error.total} elements of {name} are out of "
            f"tolerance; the worst, at [{where}], is {size}",
        )

    def record(self, finding: Finding | None) -> WorkloadCheck:
        """What was found on this problem."""
        return WorkloadCheck(
            workload=self._problem.workload.name,
            dtype=self._problem.dtype,
            calls=self.calls,
            worst_error=self.worst,
            allowed_error=self.allowed,
            worst_absolute=self.worst_absolute,
            finding=finding,
        )


def repeatable(label: str, first: Outputs, second: Outputs) -> Finding | None:
    """Whether equal inputs over different poison gave equal bytes."""
    for one, two in zip(first, second, strict=True):
        width = one.dtype.itemsize
        a = one.contiguous().reshape(-1).view(torch.uint8).reshape(-1, width)
        b = two.contiguous().reshape(-1).view(torch.uint8).reshape(-1, width)
        unwritten = int(((a == 0xFF).all(dim=1) & (b == 0x00).all(dim=1)).sum())
        if unwritten:
            return Finding(
                cause=Cause.UNWRITTEN_OUTPUT, message=f"{label}: {unwritten} elements were never written"
            )
        differing = int((a != b).any(dim=1).sum())
        if differing:
            return Finding(
                cause=Cause.NONDETERMINISTIC,
                message=f"{label}: {differing} elements differ between two calls on equal inputs",
            )
    return None


def _check_problem(contender: Contender, problem: Problem) -> WorkloadCheck:
    layout, verifier = Layout(problem), Verifier(problem)
    contender.plan(layout, 1, dict(problem.workload.scalars))

    def one(inputs: Tensors, poison: int) -> SetResult:
        arena = Arena(layout, [inputs], poison)
        try:
            snapshot, _ = contender.call(arena, 1, f"on workload {problem.label}")
            return arena.results(snapshot)[0]
        finally:
            arena.close()

    inputs = problem.make_inputs()
    first = one(inputs, 0xFF)
    second = one(inputs, 0x00)
    fresh = problem.make_inputs()
    third = one(fresh, 0xFF)
    tests: Iterable[Callable[[], Finding | None]] = (
        lambda: verifier.integrity(first),
        lambda: verifier.integrity(second),
        lambda: verifier.integrity(third),
        lambda: repeatable(problem.label, first.outputs, second.outputs),
        lambda: verifier.values(inputs, first.outputs),
        lambda: verifier.values(fresh, third.outputs),
    )
    for test in tests:
        finding = test()
        if finding is not None:
            return verifier.record(finding)
    return verifier.record(None)


def check(contender: Contender, loaded: LoadedTask, target: Target) -> CheckResult:
    """Check every workload, in secret order. A worker that dies ends the check."""
    todo = problems(loaded, target)
    random.SystemRandom().shuffle(todo)
    done: list[WorkloadCheck] = []
    for index, problem in enumerate(todo):
        try:
            done.append(_check_problem(contender, problem))
        except Failed as failure:
            done.append(Verifier(problem).record(failure.finding))
            rest = tuple(p.label for p in todo[index + 1 :])
            return CheckResult(workloads=tuple(done), finding=failure.finding, not_run=rest)
    order = [p.label for p in problems(loaded, target)]
    done.sort(key=lambda w: order.index(f"{w.workload} {w.dtype}"))
    first = next((w.finding for w in done if w.finding is not None), None)
    return CheckResult(workloads=tuple(done), finding=first)
