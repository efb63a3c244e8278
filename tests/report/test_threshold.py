"""`--fail-under`: which threshold was missed, by whom and by how much."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.report.summary import Threshold, summarise
from tests.report import factories, studies


def test_a_missed_threshold_names_metric_model_skill_wanted_and_measured() -> None:
    """Only the comparison that missed: of two skills the first solves everything, the second nothing."""
    summary = summarise(*studies.two_skills())
    first, second = summary.comparisons
    wanted = "--fail-under wanted a lift of"
    assert Threshold.parse("deployed=1").missed(summary) == (
        f"{wanted} deployed=1, {second.model} x {second.label}: not measured",
    )
    assert Threshold.parse("deployed=2.5").missed(summary) == (
        f"{wanted} deployed=2.5, {first.model} x {first.label}: measured 1",
        f"{wanted} deployed=2.5, {second.model} x {second.label}: not measured",
    )


def test_what_was_not_measured_is_missed_with_the_reason() -> None:
    """Without a GPU no share is known to be correct."""
    summary = summarise(*factories.study(gpu=False, metric="compiles"))
    (missed,) = Threshold.parse("correct=0.1").missed(summary)
    assert "not measured (" in missed


def test_a_threshold_that_holds_is_not_missed() -> None:
    """The study's skill helps."""
    assert Threshold.parse("correct=0.01").missed(summarise(*factories.study())) == ()


@pytest.mark.parametrize("text", ["joy=3", "correct", "correct=", "correct=1,compiles=1"])
def test_a_threshold_in_other_words_is_refused(text: str) -> None:
    """With the three that there are."""
    with pytest.raises(UsageError, match=r"--fail-under .*: write compiles=0\.1, correct=0\.1 or deployed="):
        Threshold.parse(text)
