"""The time stage, with workers that are threads: what is verified, who is blamed, and what is a cheat."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.errors import HarnessBug
from harness.judge.check import problems
from harness.judge.contender import Contender
from harness.judge.timing import Contenders, _paired, _ratio, pinned, runnable_threads, time_project
from harness.judge.worker_job import Source, WorkerPlace
from harness.outcome import Cause
from harness.records import TimingResult
from tests.fakes.overlays import throw_away_task
from tests.fakes.worker import HonestWorker, ThreadSandbox

PROJECT = Source("project", Path(__file__), "scale", "scale")
REFERENCE = Source("reference", Path(__file__), "reference", "reference")


def right(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    """The correct project."""
    torch.mul(x, alpha, out=out)


def slow(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    """Correct, in about 20 ms."""
    right(out, x, alpha=alpha)
    time.sleep(0.02)


def loaded(worker: HonestWorker, source: Source) -> Contender:
    """A contender that is ready."""
    contender = Contender(source, ThreadSandbox(worker), WorkerPlace(()), wall_s=600)
    contender.load()
    return contender


def run_timing(
    student: HonestWorker,
    *,
    reference: Callable[..., None] = right,
    fresh: Callable[[], HonestWorker] = lambda: HonestWorker(right),
) -> TimingResult:
    """Time a student against a reference on `scale`."""
    contenders = Contenders(
        student=loaded(student, PROJECT),
        references={"eager": loaded(HonestWorker(reference), REFERENCE)},
        null=loaded(HonestWorker(lambda *operands, **scalars: None, claim_ns=0), Source("null")),
        fresh_student=lambda: Contender(PROJECT, ThreadSandbox(fresh()), WorkerPlace(()), wall_s=600),
    )
    try:
        timed = problems(throw_away_task("scale"), "cpu", timed_only=True)
        return time_project(contenders, timed, judge_cpus=None)
    finally:
        for contender in contenders.all.values():
            contender.close()


@pytest.mark.slow
def test_timed_outputs_are_verified() -> None:
    """A project that is right until it is timed is wrong, whatever its speed."""
    calls: list[int] = []

    def act(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        # Warm-up reveals the same inputs again and again; timed inputs are never seen twice.
        calls.append(hash(float(x[0, 0])))
        right(out, x, alpha=alpha if calls.count(calls[-1]) > 1 else 0.0)

    result = run_timing(HonestWorker(act))
    assert result.finding is not None
    assert result.finding.cause is Cause.WRONG_VALUES
    assert result.speedup.n == 0


@pytest.mark.slow
def test_failing_reference_is_our_bug() -> None:
    """When the reference's worker dies while it is timed, the student is not blamed."""

    def dies(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        raise OSError("gone")

    with pytest.raises(HarnessBug, match="our own reference worker failed"):
        run_timing(HonestWorker(right), reference=dies)


@pytest.mark.slow
def test_false_claims_in_every_process_are_a_cheat() -> None:
    """Claims far below the outside figure, repeated by fresh processes, are `cheated: clock`."""
    result = run_timing(HonestWorker(slow, claim_ns=1000), fresh=lambda: HonestWorker(slow, claim_ns=1000))
    assert result.finding is not None
    assert result.finding.cause is Cause.CLOCK
    assert "in 3 of 3 fresh processes" in result.finding.message


@pytest.mark.slow
def test_false_claims_in_one_process_are_a_mismatch() -> None:
    """Claims that a fresh process does not repeat are no crime: the outside figure is scored, and flagged."""
    result = run_timing(HonestWorker(slow, claim_ns=1000), fresh=lambda: HonestWorker(slow))
    assert result.finding is None
    assert "clock_mismatch" in result.flags
    (workload,) = result.workloads
    assert workload.student.score_us > 10_000
    assert result.speedup.value < 1


def test_ratio_pairs_blocks_over_workloads() -> None:
    """Log ratios are averaged over workloads block by block; blocks that one lacks are left out."""
    assert _paired([[1.0, 2.0, 3.0], [3.0, 4.0]]) == [2.0, 3.0]
    ratio = _ratio([math.log(2.0)] * 3 + [math.log(2.1)])
    assert ratio.n == 4
    assert ratio.low is not None and ratio.high is not None
    assert ratio.low < ratio.value < ratio.high


def test_pinning_is_undone() -> None:
    """The judge's thread is pinned while it measures, and free again afterwards, also after an error."""
    import os

    before = os.sched_getaffinity(0)
    one = frozenset([min(before)])
    with pytest.raises(KeyError), pinned(one):
        assert os.sched_getaffinity(0) == one
        raise KeyError
    assert os.sched_getaffinity(0) == before
    with pinned(None):
        assert os.sched_getaffinity(0) == before


def test_runnable_threads_counts_this_one() -> None:
    """At least the thread that asks is running."""
    assert runnable_threads() >= 1
