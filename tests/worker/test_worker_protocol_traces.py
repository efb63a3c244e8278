"""Nothing of a student's survives into another trial, neither by a worker that stood by nor on its way."""

from __future__ import annotations

import secrets

import pytest

from harness.grading.grade import Grader
from harness.outcome import Cause
from tests.fakes.overlays import throw_away_task, zoo_project
from tests.fakes.processes import processes_naming


@pytest.mark.slow
def test_a_second_grade_finds_nothing_of_the_first(grader: Grader) -> None:
    """A project that leaves processes, files, variables and modules, and looks for them, finds none."""
    token = secrets.token_hex(8)
    project = zoo_project("leaves_traces", token)
    for _ in range(2):
        grade = grader.grade(project, throw_away_task("scale"))
        assert grade.finding.cause is Cause.OP_RAISED, grade.finding
        assert "closed: nothing of an earlier trial" in grade.finding.message
        assert processes_naming(f"liftbench-zoo-{token}") == []
