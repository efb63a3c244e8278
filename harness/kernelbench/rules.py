"""Scores a project by KernelBench's own rules, in addition to ours.

Correctness is checked on outputs that the judge owns. Times are the worker's claims, as these rules trust
them, and are labeled so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from harness.judge.guarded_buffers import Arena, Layout
from harness.judge.problem import Problem, Tensors
from harness.judge.worker_client import Failed, WorkerClient
from harness.judge.worker_reply import Reveal
from harness.records import KernelBenchScore

TRIALS, WARM_UPS, CALLS = 5, 3, 100
_TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
_ENOUGH_S = 30.0
"""Time for the calls; slower ones are fewer than 100, which the record says (our choice)."""
_PIECE = 1 << 26
_CHUNK = 10

Start = Callable[[], WorkerClient]


def score(problem: Problem, student: Start, eager: Start) -> KernelBenchScore:
    """Score the project and PyTorch, one after the other. Raises HarnessBug for our own failures."""
    tolerance, passed, calls = _TOLERANCES[problem.dtype], 0, 0
    mean_us = eager_us = message = None
    try:
        with _planned(student, problem) as contender:
            for _ in range(TRIALS):
                passed += _trial(contender, problem, tolerance)
            if passed == TRIALS:
                mean_us, calls = _mean_us(contender, problem)
    except Failed as failure:
        message = failure.finding.message
    if mean_us is not None:
        with _planned(eager, problem) as contender:
            eager_us, _ = _mean_us(contender, problem)
    return KernelBenchScore(
        trials=TRIALS,
        passed=passed,
        correct=passed == TRIALS and message is None,
        tolerance=tolerance,
        calls=calls,
        claimed_us=mean_us,
        eager_us=eager_us,
        message=message,
    )


@contextmanager
def _planned(start: Start, problem: Problem) -> Iterator[WorkerClient]:
    """A worker that is ready for calls."""
    contender = start()
    try:
        contender.load()
        contender.plan(Layout(problem))
        yield contender
    finally:
        contender.close()


def _shown(
    contender: WorkerClient, problem: Problem, inputs: Tensors, rounds: int = 1
) -> tuple[tuple[torch.Tensor, ...], Reveal]:
    """(outputs, times) of `rounds` calls on the same inputs. Raises Failed."""
    arena = Arena(Layout(problem), [inputs], 0xFF, contender.transport)
    try:
        snapshot, times = contender.call(arena, 1, "by KernelBench's rules", rounds=rounds)
        return arena.results(snapshot)[0].outputs, times
    finally:
        arena.close()


def _trial(contender: WorkerClient, problem: Problem, tolerance: float) -> bool:
    inputs = problem.published_inputs()
    outputs, _ = _shown(contender, problem, inputs)
    expected = problem.reference(inputs)
    return all(_close(*pair, tolerance) for pair in zip(outputs, expected, strict=True))


def _close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> bool:
    """Compare piece by piece, since a comparison makes several copies."""
    ours, theirs = ours.reshape(-1), theirs.reshape(-1)
    pieces = (slice(start, start + _PIECE) for start in range(0, theirs.numel(), _PIECE))
    return all(
        torch.allclose(ours[p].to(theirs.dtype), theirs[p], rtol=tolerance, atol=tolerance) for p in pieces
    )


def _mean_us(contender: WorkerClient, problem: Problem) -> tuple[float | None, int]:
    """(mean of the worker's claims, number of calls); None if it makes no claim."""
    inputs = problem.published_inputs()
    _shown(contender, problem, inputs, rounds=WARM_UPS)
    began, calls, total_us = time.monotonic(), 0, 0.0
    while calls < CALLS and (calls == 0 or time.monotonic() - began < _ENOUGH_S):
        _, times = _shown(contender, problem, inputs, rounds=_CHUNK)
        if times.claim_us is None:
            return None, calls
        calls += _CHUNK
        total_us += times.claim_us
    return total_us / calls, calls
