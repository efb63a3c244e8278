"""The check stage: which cases there are, and whether the project is right in all of them.

Hidden shapes and the places of adversarial values are drawn anew for every check, and the order is secret.
Truth is computed after the outputs of all calls of a case were taken (of a large problem, of each call).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random

import torch

from harness.judge import adversarial
from harness.judge.adversarial import INTEGERS, changes
from harness.judge.device_kernels import DeviceKernels
from harness.judge.guarded_buffers import Arena, Layout
from harness.judge.keystream import Seed
from harness.judge.problem import Outputs, Problem, Tensors
from harness.judge.protocol import CHECK_SIZES, EMULATED_SIZES
from harness.judge.verifier import Case, Verifier, repeatable
from harness.judge.worker_client import Failed, WorkerClient
from harness.outcome import Cause
from harness.records import CheckResult, Finding, Protocol, Target, Workload, WorkloadCheck
from harness.records.task import Range
from harness.suite.catalogue import LoadedTask

_POISON = (0xFF, 0x00)
_TRIES = 64


def problems(
    loaded: LoadedTask,
    target: Target,
    *,
    timed_only: bool = False,
    device: torch.device | None = None,
    kernels: DeviceKernels | None = None,
    sizes: Target | None = None,
) -> list[Problem]:
    """All workloads of a task with all dtypes of the target; `device` is where the judge makes inputs, by
    `kernels` (default: they are drawn on the host), `sizes` the target whose shapes are used (default: the
    same)."""
    workloads = [w for w in loaded.task.workloads_for(sizes or target) if w.timed or not timed_only]
    dtypes = loaded.task.dtypes[target]
    each = ((workload, dtype) for workload in workloads for dtype in dtypes)
    return [Problem(loaded, *one, device=device, kernels=kernels) for one in each]


def cases(
    loaded: LoadedTask,
    target: Target,
    protocol: Protocol = "quick",
    *,
    device: torch.device | None = None,
    kernels: DeviceKernels | None = None,
    emulated: bool = False,
    seed: Seed | None = None,
) -> list[Case]:
    """`seed`: draws hidden shapes and places (default: a fresh one)."""
    draw = (seed or Seed()).random
    size, task = (EMULATED_SIZES if emulated else CHECK_SIZES)[protocol], loaded.task
    every = problems(loaded, target, device=device, kernels=kernels, sizes="cpu" if emulated else target)
    chosen = [Case(problem, repeats=size.repeats, seeds=size.seeds) for problem in every]
    for workload in hidden_workloads(loaded, target, size.hidden, size.hidden_bytes, draw):
        dtypes = task.dtypes[target] if size.everywhere else (draw.choice(task.dtypes[target]),)
        drawn = [Problem(loaded, workload, d, device=device, kernels=kernels, hidden=True) for d in dtypes]
        chosen += [Case(problem, repeats=size.repeats, seeds=min(size.seeds, 1)) for problem in drawn]
    small = [p for p in every if p.size_bytes <= size.small_bytes]
    small = small or [min(every, key=lambda p: p.size_bytes)]

    def places(candidates: list[Problem]) -> list[Problem]:
        return candidates if size.everywhere or not candidates else [draw.choice(candidates)]

    changeable = [p for p in small if changes(p)]
    for kind in dict.fromkeys([*task.values, *([INTEGERS] if task.exact else [])]):
        chosen += [Case(problem, values=kind, repeats=1, seeds=0) for problem in places(changeable)]
    for layout in dict.fromkeys(task.layouts):
        if layout != "contiguous":
            chosen += [Case(problem, layout=layout, repeats=2, seeds=0) for problem in places(small)]
    return chosen


def hidden_workloads(
    loaded: LoadedTask, target: Target, count: int, most_bytes: int, draw: Random
) -> list[Workload]:
    """`count` shapes from the task's ranges, none where it has none; every second is an awkward one."""
    hidden, task = loaded.task.hidden, loaded.task
    if hidden is None:
        return []
    dtypes, workloads = task.dtypes[target], task.workloads_for(target)
    made: list[Workload] = []
    for index in range(count):
        candidates: list[tuple[int, Workload]] = []
        while len(candidates) < _TRIES:
            awkward = index % 2 == 0
            dims = {name: _draw(extent, draw, small=awkward) for name, extent in hidden.dims.items()}
            if awkward:
                name = draw.choice(sorted(dims))
                dims[name] = _awkward(hidden.dims[name], dims[name], draw)
            scalars = draw.choice(workloads).scalars
            workload = Workload(name=f"drawn_{index + 1}", dims=dims, scalars=scalars)
            candidates.append((max(Problem(loaded, workload, d).size_bytes for d in dtypes), workload))
            if candidates[-1][0] <= most_bytes:
                break
        # The last one fits, or none does.
        made.append(min(candidates, key=lambda one: one[0])[1])
    return made


def _parts(extent: Range) -> tuple[int, int, int]:
    return (extent[0], extent[1], 1) if len(extent) == 2 else extent


def _draw(extent: Range, draw: Random, *, small: bool) -> int:
    """Uniform, or `small`: uniform in the logarithm, so that sizes of all orders are equally likely."""
    low, high, step = _parts(extent)
    drawn = draw.uniform(low, high + 1)
    if small:
        drawn = math.exp(draw.uniform(math.log(low + 1), math.log(high + 2))) - 1
    return low + (min(max(int(drawn), low), high) - low) // step * step


def _awkward(extent: Range, otherwise: int, draw: Random) -> int:
    low, high, step = _parts(extent)
    powers = [2**k + d for k in range(high.bit_length() + 1) for d in (-1, 1)]
    prime = max(2, otherwise)
    while any(prime % divisor == 0 for divisor in range(2, math.isqrt(prime) + 1)):
        prime += 1
    flavors = [[1], [prime], [otherwise | 1], powers]
    fitting = [[v for v in some if low <= v <= high and (v - low) % step == 0] for some in flavors]
    fitting = [some for some in fitting if some]
    return draw.choice(draw.choice(fitting)) if fitting else otherwise


def rehearse(client: WorkerClient, todo: Iterable[Case]) -> None:
    """One call of each case, whose outputs are not looked at. Raises Failed."""
    for case in todo:
        layout = Layout(case.problem, case.layout)
        client.plan(layout)
        with Arena(layout, [_draw_inputs(case)], _POISON[0], client.transport) as arena:
            client.call(arena, 1, f"on workload {case.label}", spin=False)


def check(
    client: WorkerClient,
    loaded: LoadedTask,
    target: Target,
    protocol: Protocol = "quick",
    todo: Iterable[Case] | None = None,
    seed: Seed | None = None,
) -> CheckResult:
    """`seed`: draws everything (default: a fresh one); `todo`: the cases, where it drew them before."""
    seed = seed or Seed()
    device, kernels = client.transport.device, client.transport.kernels
    todo = list(todo or cases(loaded, target, protocol, device=device, kernels=kernels, seed=seed))
    order = [case.label for case in todo]
    seed.random.shuffle(todo)
    done: dict[str, WorkloadCheck] = {}
    ended: Finding | None = None
    for case in todo:
        try:
            done[case.label] = _check_case(client, case, seed)
        except Failed as failure:
            ended = failure.finding
            done[case.label] = Verifier(case.problem, case).record(ended)
            break
    checked = tuple(done[label] for label in order if label in done)
    finding, not_run = ended or _first(w.finding for w in checked), (x for x in order if x not in done)
    precision = loaded.task.precision
    return CheckResult(
        workloads=checked,
        finding=finding,
        not_run=tuple(not_run),
        precision=precision,
        seed=seed.value.hex(),
    )


def _draw_inputs(case: Case, key: bytes | None = None) -> Tensors:
    return adversarial.fit_layout(case.problem, adversarial.make(case.problem, case.values, key), case.layout)


def _check_case(client: WorkerClient, case: Case, seed: Seed) -> WorkloadCheck:
    layout, verifier = Layout(case.problem, case.layout), Verifier(case.problem, case)
    client.plan(layout)
    finding = _judge(verifier, client, case, layout, seed)
    return verifier.record(finding or _changed_settings(client, case))


def _judge(
    verifier: Verifier, client: WorkerClient, case: Case, layout: Layout, seed: Seed
) -> Finding | None:
    """Make all calls of a case; what is wrong: writes outside of what a call may write, then unequal outputs
    of equal inputs, then values. Raises Failed."""
    integrity: list[Finding | None] = []
    repeated: list[Finding | None] = []
    wrong: list[Finding | None] = []

    def one(given: Tensors, poison: int) -> Outputs:
        with Arena(layout, [given], poison, client.transport) as arena:
            snapshot, _ = client.call(arena, 1, f"on workload {case.label}", spin=False)
            result = arena.results(snapshot)[0]
        integrity.append(verifier.integrity(result))
        return result.outputs

    def again(index: int) -> None:
        outputs = one(inputs, _POISON[index % 2])
        # Every second call lies over other poison than the first.
        unwritten, bound = index % 2 == 1, case.problem.task.nondeterminism
        repeated.append(repeatable(case.label, first, outputs, bound, unwritten=unwritten))

    inputs = _draw_inputs(case, seed.key(case.label, 0))
    first = one(inputs, _POISON[0])
    calls = [(inputs, first)]
    if case.repeats > 1:
        again(1)
    for draw in range(case.seeds):
        fresh = _draw_inputs(case, seed.key(case.label, draw + 1))
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


def _changed_settings(client: WorkerClient, case: Case) -> Finding | None:
    """Whether torch's global settings are what they were before the project was loaded. A claim, which native
    code can forge; nothing depends on it, since references and truth run in other processes."""
    changed = client.changed_settings()
    if not changed:
        return None
    words = ", ".join(f"{name} was {before} and is {after}" for name, before, after in changed)
    message = f"{case.label}: a global setting of torch was changed and not put back: {words}"
    return Finding(cause=Cause.CHANGED_GLOBALS, message=message)
