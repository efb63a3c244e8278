"""What a teacher is told of development trials."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.outcome import Cause
from harness.records import Arm, Briefing, TrialRecord
from harness.teaching.brief import evidence, first_brief
from harness.text import estimate_tokens
from tests.fakes.teaching import ORDER
from tests.report import factories

WITH, WITHOUT = Arm(kind="with_skill", skills=("s",)), Arm(kind="without_skill")


def trials(arm: Arm, *causes: Cause) -> list[TrialRecord]:
    return [
        factories.trial(
            "l1/a", arm, cause, factories.NVCC if cause is Cause.COMPILE_ERROR else "why", repeat=i
        )
        for i, cause in enumerate(causes)
    ]


def test_groups_come_by_count_with_both_sides() -> None:
    """The most frequent first, each with its count without the skill, a compiler error with its place."""
    told = evidence(
        trials(WITH, Cause.WRONG_VALUES, Cause.COMPILE_ERROR, Cause.COMPILE_ERROR, Cause.PASSED),
        trials(WITHOUT, Cause.COMPILE_ERROR, Cause.NO_FILES),
        8_000,
        briefing="full",
    )
    assert told.index("compile_error (syntax): 2 with the skill, 1 without") < told.index(
        "wrong_values: 1 with the skill, 0 without"
    )
    assert "| build_failed | 2 of 4 | 1 of 2 |" in told
    assert "- rms_norm_cuda/rms_norm.cu:41: " in told
    assert "not measured" in evidence(trials(WITH, Cause.COMPILE_ERROR), [], 8_000, briefing="full")


def test_it_keeps_to_its_budget_and_counts_what_it_left_out() -> None:
    """A small budget drops the rarest groups, says how many, and is never exceeded."""
    causes = (Cause.COMPILE_ERROR, Cause.WRONG_VALUES, Cause.SIGNAL, Cause.IMPORT_ERROR, Cause.NO_FILES)
    for budget in (60, 120, 200, 400, 8_000):
        told = evidence(trials(WITH, *causes), [], budget, briefing="full")
        assert estimate_tokens(told) <= budget
    assert "more groups are left out" in evidence(trials(WITH, *causes), [], 200, briefing="full")


def test_trials_that_we_lost_are_no_evidence() -> None:
    """A provider's outage is not the skill's."""
    told = evidence(trials(WITH, Cause.PROVIDER, Cause.PASSED), [], 8_000, briefing="full")
    assert "| correct | 1 of 1 |" in told
    assert "provider" not in told


@pytest.mark.parametrize(("briefing", "told"), [("contract", False), ("full", True)])
def test_a_teacher_is_told_of_the_format_what_students_are(briefing: Briefing, told: bool) -> None:
    """Neither the rules for a skill nor quoted failures teach what the prompt withholds."""
    said = "build.toml is not valid: line 2: write `edition = 5`\nkernel-builder says: no edition"
    failed = factories.trial("l1/a", WITH, Cause.BAD_BUILD_TOML, said)
    measured = evidence([failed], [], briefing=briefing)
    assert ("edition = 5" in measured) is told
    assert ("no edition" in measured) is not told
    rules = first_brief(replace(ORDER, briefing=briefing))[0].content
    assert ("torch-ext" in rules) is told and "{path}" not in rules
