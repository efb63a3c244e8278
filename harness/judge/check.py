"""The check stage: is the project right in every case?

Truth is computed after the outputs of all calls of the case were taken; of a large problem, where few sets
fit, that of B after B.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from harness.judge import values
from harness.judge.arena import Arena, Layout
from harness.judge.cases import Case, cases, problems
from harness.judge.problem import Tensors
from harness.judge.verifier import Outputs, Verifier, repeatable
from harness.judge.worker_client import Failed, WorkerClient
from harness.outcome import Cause
from harness.records import CheckResult, Finding, Protocol, Target, WorkloadCheck
from harness.suite.catalogue import LoadedTask

__all__ = ["Outputs", "Verifier", "check", "problems", "repeatable"]

_POISON = (0xFF, 0x00)


def _judge(verifier: Verifier, contender: WorkerClient, case: Case, layout: Layout) -> Finding | None:
    """Make all calls of a case; the first thing that is wrong with it. Raises Failed.

    Whether calls stayed within what they may write comes first, then equal outputs of equal inputs, then
    values.
    """
    integrity: list[Finding | None] = []
    repeated: list[Finding | None] = []
    wrong: list[Finding | None] = []

    def one(given: Tensors, poison: int) -> Outputs:
        arena = Arena(layout, [given], poison, contender.transport)
        try:
            snapshot, _ = contender.call(arena, 1, f"on workload {case.label}")
            result = arena.results(snapshot)[0]
        finally:
            arena.close()
        integrity.append(verifier.integrity(result))
        return result.outputs

    def again(index: int) -> None:
        outputs = one(inputs, _POISON[index % 2])
        # Every second call lies over other poison than the first.
        repeated.append(verifier.repeatable(first, outputs, unwritten=index % 2 == 1))

    inputs = _inputs(case)
    first = one(inputs, _POISON[0])
    calls = [(inputs, first)]
    if case.repeats > 1:
        again(1)
    for _ in range(case.seeds):
        fresh = _inputs(case)
        calls.append((fresh, one(fresh, _POISON[0])))
        if case.problem.large:  # another set does not fit
            wrong.append(verifier.values(*calls.pop()))
        del fresh
    for index in range(2, case.repeats):
        again(index)
    judged = (verifier.values(*call) for call in calls)
    return _first([*integrity, *repeated]) or _first(judged) or _first(wrong)


def _first(findings: Iterable[Finding | None]) -> Finding | None:
    return next((finding for finding in findings if finding is not None), None)


def _inputs(case: Case) -> Tensors:
    return values.fit_layout(case.problem, values.make(case.problem, case.values), case.layout)


def _check_case(contender: WorkerClient, case: Case) -> WorkloadCheck:
    layout, verifier = Layout(case.problem, case.layout), Verifier(case.problem, case)
    contender.plan(layout, 1, dict(case.problem.workload.scalars))
    finding = _judge(verifier, contender, case, layout)
    return verifier.record(finding or _changed_globals(contender, case))


def _changed_globals(contender: WorkerClient, case: Case) -> Finding | None:
    """Whether torch's global settings are what they were before the project was loaded.

    What a worker says of them is a claim, and native code can have it lie. References run in other
    processes and truth in the judge's, so nothing depends on it: it is a trip-wire for honest mistakes.
    """
    changed = contender.changed_flags()
    if not changed:
        return None
    words = ", ".join(f"{name} was {before} and is {after}" for name, before, after in changed)
    return Finding(
        cause=Cause.CHANGED_GLOBALS,
        message=f"{case.label}: a global setting of torch was changed and not put back: {words}",
    )


def check(
    contender: WorkerClient, loaded: LoadedTask, target: Target, protocol: Protocol = "quick"
) -> CheckResult:
    """Check every case, in secret order. A worker that dies ends the check."""
    todo = cases(loaded, target, protocol, device=contender.transport.device)
    order = [case.label for case in todo]
    random.SystemRandom().shuffle(todo)
    done: dict[str, WorkloadCheck] = {}
    ended: Finding | None = None
    for case in todo:
        try:
            done[case.label] = _check_case(contender, case)
        except Failed as failure:
            ended = failure.finding
            done[case.label] = Verifier(case.problem, case).record(ended)
            break
    checked = tuple(done[label] for label in order if label in done)
    return CheckResult(
        workloads=checked,
        finding=ended or next((w.finding for w in checked if w.finding is not None), None),
        not_run=tuple(label for label in order if label not in done),
        precision=loaded.task.precision,
    )
