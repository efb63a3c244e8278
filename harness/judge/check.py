"""The check stage: is the project right in every case?

Owns: which calls a case consists of, and the verdict on all of them. Does not own: which cases there are
(cases.py), the verdict on outputs (verifier.py).
A case's calls are all at the same addresses: secret inputs A over 0xFF poison, A again over 0x00 (equal
outputs prove that everything was written, and determinism), then fresh inputs B (a replay of A is
wrong), then A once more (nothing of B was kept). Operands that are read and written are restored
before every call. Invariant: truth is computed after the outputs of all calls of the case were taken.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from harness.catalogue import LoadedTask
from harness.judge import values
from harness.judge.arena import Arena, Layout, SetResult
from harness.judge.cases import Case, cases, problems
from harness.judge.contender import Contender, Failed
from harness.judge.problem import Tensors
from harness.judge.verifier import Outputs, Verifier, repeatable
from harness.outcome import Cause
from harness.records import CheckResult, Finding, Protocol, Target, WorkloadCheck

__all__ = ["Outputs", "Verifier", "check", "problems", "repeatable"]

_POISON = (0xFF, 0x00)


@dataclass
class _Calls:
    """What came back in one case."""

    first: SetResult
    repeated: list[SetResult] = field(default_factory=list)
    fresh: list[tuple[Tensors, SetResult]] = field(default_factory=list)


def _make(contender: Contender, case: Case, layout: Layout, inputs: Tensors) -> _Calls:
    """All calls of a case. Raises Failed."""

    def one(given: Tensors, poison: int) -> SetResult:
        arena = Arena(layout, [given], poison, contender.transport)
        try:
            snapshot, _ = contender.call(arena, 1, f"on workload {case.label}")
            return arena.results(snapshot)[0]
        finally:
            arena.close()

    calls = _Calls(one(inputs, _POISON[0]))
    if case.repeats > 1:
        calls.repeated.append(one(inputs, _POISON[1]))
    for _ in range(case.seeds):
        fresh = _inputs(case)
        calls.fresh.append((fresh, one(fresh, _POISON[0])))
    for index in range(2, case.repeats):
        calls.repeated.append(one(inputs, _POISON[index % 2]))
    return calls


def _inputs(case: Case) -> Tensors:
    return values.fit_layout(case.problem, values.make(case.problem, case.values), case.layout)


def _judge(verifier: Verifier, inputs: Tensors, calls: _Calls) -> Finding | None:
    """The first thing that is wrong with a case."""
    for result in (calls.first, *calls.repeated, *(result for _, result in calls.fresh)):
        finding = verifier.integrity(result)
        if finding is not None:
            return finding
    for index, again in enumerate(calls.repeated):
        # Only the second call lay over other poison than the first.
        finding = verifier.repeatable(calls.first.outputs, again.outputs, unwritten=index % 2 == 0)
        if finding is not None:
            return finding
    for given, result in [(inputs, calls.first), *calls.fresh]:
        finding = verifier.values(given, result.outputs)
        if finding is not None:
            return finding
    return None


def _check_case(contender: Contender, case: Case) -> WorkloadCheck:
    layout, verifier = Layout(case.problem, case.layout), Verifier(case.problem, case)
    contender.plan(layout, 1, dict(case.problem.workload.scalars))
    inputs = _inputs(case)
    finding = _judge(verifier, inputs, _make(contender, case, layout, inputs))
    return verifier.record(finding or _changed_globals(contender, case))


def _changed_globals(contender: Contender, case: Case) -> Finding | None:
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
    contender: Contender, loaded: LoadedTask, target: Target, protocol: Protocol = "quick"
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
