"""Grading for real in the sandboxes that need no daemon: a right project passes, a wrong one is caught."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.builder.toolchain import find_toolchain
from harness.grade import Grader, GradeSettings
from harness.machine import machine_facts
from harness.outcome import Verdict
from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.caged import CagedSandbox
from sandboxes.landlock import LandlockBackend
from tests.fakes.overlays import throw_away_task, zoo_project

pytestmark = pytest.mark.slow


@pytest.fixture(params=[BubblewrapBackend, LandlockBackend], ids=lambda kind: str(kind.name))
def grader(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Grader]:
    """For the CPU target, in each of the sandboxes that works here."""
    backend = request.param()
    reason = backend.unavailable()
    if reason is not None:
        pytest.skip(reason)
    toolchain = find_toolchain()
    settings = GradeSettings(target="cpu", protocol="quick", cache=tmp_path)
    made = Grader(settings, CagedSandbox(backend), toolchain, machine_facts(toolchain))
    yield made
    made.close()


def test_grades_are_those_of_every_sandbox(grader: Grader) -> None:
    """A right project is correct and timed; one that returns a constant is wrong; the record says where."""
    task = throw_away_task("scale")
    right = grader.grade(zoo_project("correct"), task)
    assert right.verdict is Verdict.CORRECT, right.finding
    assert right.timing is not None
    wrong = grader.grade(zoo_project("returns_constant"), task)
    assert wrong.verdict is Verdict.WRONG_RESULT, wrong.finding
    assert right.sandbox in ("bubblewrap", "landlock")
    assert right.sandbox_facts["network"].startswith("no")
