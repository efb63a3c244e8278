"""fast_p by KernelBench's own rules, beside ours."""

from __future__ import annotations

import dataclasses

from harness.outcome import Cause, Verdict
from harness.report.html import render_html
from harness.report.lifts import kernelbench_points
from harness.report.markdown import report_markdown
from harness.report.metrics import Score
from harness.report.records import Usages
from harness.report.summary import summarise
from tests.report import factories as make
from tests.report import studies
from tests.report.test_summary import small_study
from tests.report.test_terminal import screen

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
    points = {p.threshold: p for p in kernelbench_points(arm(1.2, 0.0, None, 3.0), arm(0.9, 0.0), 0.95)}
    assert (points[0.0].treatment, points[0.0].control) == (2 / 3, 1 / 2)
    assert (points[1.0].treatment, points[1.0].control) == (2 / 3, 0.0)
    assert (points[2.0].treatment, points[2.0].control) == (1 / 3, 0.0)


def test_there_is_no_curve_without_their_problems() -> None:
    """Neither is there a zero."""
    assert list(kernelbench_points(arm(None), arm(None), 0.95)) == []


def test_both_scores_rest_on_the_same_trials() -> None:
    """Ours is by family over their problems alone: a task of ours, correct at 9x, is in neither."""
    theirs = dataclasses.replace(BARE, speedup=1.3, kernelbench=2.5)
    failed = dataclasses.replace(BARE, correct=False, speedup=None, kernelbench=0.0)
    other = dataclasses.replace(BARE, task="l1/x", family="g", speedup=9.0)
    points = {p.threshold: p for p in kernelbench_points([theirs, other], [failed, other], 0.95)}
    ours = points[1.0].ours
    assert ours is not None
    assert (ours.control, ours.treatment, ours.lift, ours.low) == (0.0, 1.0, 1.0, None)
    slower = points[2.0].ours
    assert slower is not None
    assert (slower.treatment, points[2.0].treatment) == (0.0, 1.0)


def test_both_stand_side_by_side_in_every_report() -> None:
    """Six of their problems: ours says 1.3x, they say 2.5x; a run without them says nothing of them."""
    summary = summarise(*studies.kernelbench())
    rows = [line.split() for line in screen(summary).splitlines() if line.startswith(("1x ", "2x "))]
    assert rows == [
        ["1x", "0%", "83%", "+83", "pts", "(0,", "+100)", "0%", "83%"],
        ["2x", "0%", "0%", "0", "pts", "n/a", "0%", "83%"],
    ]
    assert "| 1x | 0% | 83% | +83 pts | (0, +100) | 0% | 83% |" in report_markdown(summary)
    page = render_html(summary)
    assert "by both rules</h3>" in page
    assert page.index("by both rules</h3>") < page.index("Numbers behind the figures")
    bare = summarise(*small_study())
    assert "KernelBench" not in screen(bare) + report_markdown(bare)
    assert "by both rules" not in render_html(bare)
    assert max(map(len, screen(summary).splitlines())) <= 80


def test_without_a_gpu_there_is_no_score_of_either() -> None:
    """Not measured is in neither table."""
    run, trials, tasks = studies.kernelbench()
    key = trials[-1].key
    trials[-1] = make.trial(key.task, make.WITH, Cause.NO_CUDA_DEVICE, "no CUDA device")
    assert "KernelBench" not in screen(summarise(run, trials, tasks))
