"""fast_p by KernelBench's own rules, beside ours."""

from __future__ import annotations

import dataclasses

from harness.outcome import Cause, Verdict
from harness.report.records import Usages
from harness.report.rows import kernelbench_points
from harness.report.scoring import Score

BARE = Score(
    task="kernelbench_level1/1_x",
    family="f",
    model="m",
    arm="a",
    compiled=True,
    correct=True,
    speedup=None,
    distinguishable=False,
    noisy=False,
    usage=Usages(input_tokens=None, output_tokens=None, cost_usd=None),
    verdict=Verdict.CORRECT,
    cause=Cause.PASSED,
)


def arm(*speedups: float | None) -> list[Score]:
    """Trials by their rules: 0 is not correct, None not a problem of theirs."""
    return [dataclasses.replace(BARE, kernelbench=speedup) for speedup in speedups]


def test_fast_p_is_a_plain_mean_over_their_problems() -> None:
    """Failures count, other tasks do not."""
    points = {p.threshold: p for p in kernelbench_points(arm(1.2, 0.0, None, 3.0), arm(0.9, 0.0))}
    assert (points[0.0].treatment, points[0.0].control) == (2 / 3, 1 / 2)
    assert (points[1.0].treatment, points[1.0].control) == (2 / 3, 0.0)
    assert (points[2.0].treatment, points[2.0].control) == (1 / 3, 0.0)


def test_there_is_no_curve_without_their_problems() -> None:
    """Neither is there a zero."""
    assert list(kernelbench_points(arm(None), arm(None))) == []
