"""Which calls a check makes: a list of cases.

Every workload is checked with the task's own values in every dtype; hidden shapes and the places of
adversarial values are drawn anew for every check, so nothing of them can be known beforehand.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch

from harness.judge.problem import Problem
from harness.judge.values import INTEGERS, OWN, changes
from harness.records import Protocol, Target, Workload
from harness.records.task import Arrangement, Range
from harness.suite.catalogue import LoadedTask


@dataclass(frozen=True)
class Plan:
    """How much of everything a protocol does."""

    hidden: int
    """Hidden shapes."""
    hidden_bytes: int
    """The most that the operands of one of them may take."""
    seeds: int
    """Sets of fresh values for a workload, beside the one that is repeated."""
    everywhere: bool
    """Every kind of values and layout on every workload that is small enough, else on one of them."""


# 5 seeds and hidden shapes: protocols.md. The rest is our own: `quick` is to cost little more than the
# workloads alone.
PLANS: dict[Protocol, Plan] = {
    "quick": Plan(hidden=2, hidden_bytes=2 << 20, seeds=1, everywhere=False),
    "full": Plan(hidden=6, hidden_bytes=64 << 20, seeds=4, everywhere=True),
}
_SMALL_BYTES: dict[Protocol, int] = {"quick": 3 << 18, "full": 64 << 20}
"""Adversarial values and layouts are tried on workloads of at most this size (the smallest, if none is)."""
_REPEATS = 3
_TRIES = 64
_secret = random.SystemRandom()


@dataclass(frozen=True)
class Case:
    """One problem, with one kind of values in one layout."""

    problem: Problem
    values: str = OWN
    layout: Arrangement = "contiguous"
    repeats: int = _REPEATS
    """Calls on the first inputs, over different poison, one of them after all others."""
    seeds: int = 1
    """Calls on fresh inputs in between."""

    @property
    def label(self) -> str:
        """For messages and for the record of what was not run."""
        words = [self.problem.label]
        if self.problem.hidden:
            words[0] += f" ({' '.join(f'{k}={v}' for k, v in self.problem.workload.dims.items())})"
        if self.values != OWN:
            words.append(f"values {self.values}")
        if self.layout != "contiguous":
            words.append(self.layout)
        return ", ".join(words)


def problems(
    loaded: LoadedTask, target: Target, *, timed_only: bool = False, device: torch.device | None = None
) -> list[Problem]:
    """All workloads of a task with all dtypes of the target; `device` is where the judge makes inputs."""
    task = loaded.task
    return [
        Problem(loaded, workload, dtype, device=device)
        for workload in task.workloads_for(target)
        if workload.timed or not timed_only
        for dtype in task.dtypes[target]
    ]


def cases(
    loaded: LoadedTask, target: Target, protocol: Protocol = "quick", *, device: torch.device | None = None
) -> list[Case]:
    """All cases of a check, in the order in which they are shown."""
    plan, task = PLANS[protocol], loaded.task
    every = problems(loaded, target, device=device)
    chosen = [Case(problem, seeds=plan.seeds) for problem in every]
    for workload in hidden_workloads(loaded, target, plan.hidden, plan.hidden_bytes):
        dtypes = task.dtypes[target] if plan.everywhere else (_secret.choice(task.dtypes[target]),)
        chosen += [Case(Problem(loaded, workload, d, device=device, hidden=True)) for d in dtypes]
    small = [p for p in every if p.size_bytes <= _SMALL_BYTES[protocol]]
    small = small or [min(every, key=lambda p: p.size_bytes)]

    def places(candidates: list[Problem]) -> list[Problem]:
        return candidates if plan.everywhere or not candidates else [_secret.choice(candidates)]

    changeable = [p for p in small if changes(p)]
    for kind in dict.fromkeys([*task.values, *([INTEGERS] if task.exact else [])]):
        chosen += [Case(problem, values=kind, repeats=1, seeds=0) for problem in places(changeable)]
    for layout in dict.fromkeys(task.layouts):
        if layout != "contiguous":
            chosen += [Case(problem, layout=layout, repeats=2, seeds=0) for problem in places(small)]
    return chosen


def hidden_workloads(loaded: LoadedTask, target: Target, count: int, most_bytes: int) -> list[Workload]:
    """`count` shapes from the task's ranges, none where it has none; every second is an awkward one.

    The scalars are those of one of the task's workloads.
    """
    hidden, task = loaded.task.hidden, loaded.task
    if hidden is None:
        return []
    dtypes, workloads = task.dtypes[target], task.workloads_for(target)
    made: list[Workload] = []
    for index in range(count):
        candidates = []
        for _ in range(_TRIES):
            awkward = index % 2 == 0
            dims = {name: _draw(extent, small=awkward) for name, extent in hidden.dims.items()}
            if awkward:
                name = _secret.choice(sorted(dims))
                dims[name] = _awkward(hidden.dims[name], dims[name])
            workload = Workload(
                name=f"drawn_{index + 1}", dims=dims, scalars=_secret.choice(workloads).scalars
            )
            size = max(Problem(loaded, workload, d).size_bytes for d in dtypes)
            candidates.append((size, workload))
            if size <= most_bytes:
                break
        made.append(candidates[-1][1] if candidates[-1][0] <= most_bytes else min(candidates, key=_size)[1])
    return made


def _size(candidate: tuple[int, Workload]) -> int:
    return candidate[0]


def _parts(extent: Range) -> tuple[int, int, int]:
    return (extent[0], extent[1], 1) if len(extent) == 2 else extent


def _draw(extent: Range, *, small: bool) -> int:
    """Uniform, or `small`: uniform in the logarithm, so that sizes of all orders occur alike."""
    low, high, step = _parts(extent)
    drawn = _secret.uniform(low, high + 1)
    if small:
        drawn = math.exp(_secret.uniform(math.log(low + 1), math.log(high + 2))) - 1
    return low + (min(max(int(drawn), low), high) - low) // step * step


def _awkward(extent: Range, otherwise: int) -> int:
    """1, a prime, an odd number, or a power of two give or take one, where the range has such."""
    low, high, step = _parts(extent)
    powers = [2**k + d for k in range(high.bit_length() + 1) for d in (-1, 1)]
    odd = otherwise | 1
    flavours = [[1], [_prime_from(otherwise)], [odd], powers]
    fitting = [[v for v in some if low <= v <= high and (v - low) % step == 0] for some in flavours]
    fitting = [some for some in fitting if some]
    return _secret.choice(_secret.choice(fitting)) if fitting else otherwise


def _prime_from(number: int) -> int:
    """The smallest prime that is not below `number`."""
    candidate = max(2, number)
    while any(candidate % divisor == 0 for divisor in range(2, math.isqrt(candidate) + 1)):
        candidate += 1
    return candidate
