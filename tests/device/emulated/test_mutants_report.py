"""The report on mutants counts what was found by a fitting means, and fails below 95 %."""

from __future__ import annotations

import pytest

from harness.records import Project
from harness.suite.catalogue import LoadedTask
from tests.device.emulated.mutants import mutants
from tools.mutants import Outcome, main

FOUND_BY = {mutant.project().digest: mutant.found_by[0] for mutant in mutants()}


def found(project: Project, loaded: LoadedTask) -> Outcome:
    """An emulator that finds every mutant."""
    return Outcome(FOUND_BY.get(project.digest, "correct"), f"first line of {loaded.task.id}\nsecond line")


def test_everything_found_is_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has every mutant with its means, and the share."""
    assert main(["--control"], found) == 0
    out = capsys.readouterr().out
    assert all(mutant.name in out for mutant in mutants())
    assert f"found: {len(FOUND_BY)} of {len(FOUND_BY)} (100.0%)" in out
    assert "first line of l1/softmax" in out and "second line" not in out


def test_a_means_that_does_not_fit_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    """A lost tail that crashes was not found, and the exit code is 3."""
    assert main(["--only", "lost_tail.*"], lambda project, loaded: Outcome("crashed", "")) == 3
    assert "NOT FOUND (crashed)" in capsys.readouterr().out


def test_an_expert_that_is_not_correct_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With --control an expert that fails without a patch is exit code 3."""
    assert (
        main(["--only", "deadlock.gemm", "--control"], lambda project, loaded: Outcome("deadlock", "x")) == 3
    )
    assert "NOT CORRECT WITHOUT A PATCH: l1/gemm: deadlock: x" in capsys.readouterr().out


def test_a_pattern_without_mutants_is_a_usage_error() -> None:
    """Exit code 2."""
    assert main(["--only", "none"], found) == 2
