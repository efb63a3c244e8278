"""fast_p by KernelBench's own rules, beside ours."""

from __future__ import annotations

import dataclasses

from harness.outcome import Cause, Verdict
from harness.report.lifts import kernelbench_points
from harness.report.metrics import Score
from harness.report.records import Usages
from harness.report.summary import summarise
from tests.report import factories as make
from tests.report import studies

BARE = Score(
    task="kernelbench_level1/1_x", family="f", model="m", arm="a", compiled=True, correct=True,
    speedup=None, distinguishable=False, noisy=False, verdict=Verdict.CORRECT, cause=Cause.PASSED,
    usage=Usages(input_tokens=None, output_tokens=None, cost_usd=None),
)  # fmt: skip


def arm(*speedups: float | None) -> list[Score]:
    """Trials by their rules: 0 is not correct, None not a problem of theirs."""
    return [dataclasses.replace(BARE, kernelbench=speedup) for speedup in speedups]


def test_fast_p_is_a_plain_mean_over_their_problems() -> None:
    """Failures count, other tasks do not; without their problems there is no curve."""
    points = {p.threshold: p for p in kernelbench_points(arm(1.2, 0.0, None, 3.0), arm(0.9, 0.0), 0.95)}
    assert (points[0.0].treatment, points[0.0].control) == (2 / 3, 1 / 2)
    assert (points[1.0].treatment, points[1.0].control) == (2 / 3, 0.0)
    assert (points[2.0].treatment, points[2.0].control) == (1 / 3, 0.0)
    assert list(kernelbench_points(arm(None), arm(None), 0.95)) == []


def test_both_scores_rest_on_the_same_trials() -> None:
    """Ours is by family over their problems alone: a task of ours, correct at 9x, is in neither."""
    theirs = dataclasses.replace(BARE, speedup=1.3, kernelbench=2.5)
    failed = dataclasses.replace(BARE, correct=False, speedup=None, kernelbench=0.0)
    other = dataclasses.replace(BARE, task="l1/x", family="g", speedup=9.0)
    points = {p.threshold: p for p in kernelbench_points([theirs, other], [failed, other], 0.95)}
    ours, slower = points[1.0].ours, points[2.0].ours
    assert ours is not None and slower is not None
    assert (ours.control, ours.treatment, ours.lift, ours.low) == (0.0, 1.0, 1.0, None)
    assert (slower.treatment, points[2.0].treatment) == (0.0, 1.0)


def test_without_a_gpu_there_is_no_score_of_either() -> None:
    """Not measured is in neither table."""
    run, trials, tasks = studies.kernelbench()
    trials[-1] = make.trial(trials[-1].key.task, make.WITH, Cause.NO_CUDA_DEVICE, "no CUDA device")
    assert summarise(run, trials, tasks).comparisons[0].kernelbench_fast_p == ()
