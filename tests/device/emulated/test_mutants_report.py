"""The report on mutants counts what was found by a fitting means, and fails below 95 %."""

from __future__ import annotations

import re

import pytest

from harness.builder.toolchain import Toolchain
from harness.records import Project
from harness.suite.catalogue import LoadedTask
from tests.device.emulated.mutants import mutants
from tools.mutants import CORRECT, DOCUMENT, LEAST_SHARE, Outcome, Row, document, main

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


def test_useless_options_are_usage_errors() -> None:
    """A pattern without mutants, and the page of a part of them, are exit code 2."""
    assert main(["--only", "none"], found) == 2
    assert main(["--only", "deadlock.*", "--write"], found) == 2


def test_the_page_says_what_was_not_found_and_why() -> None:
    """Kinds, rows with a reason where one is known, the share, the control, and that it is emulated."""
    first, missed = mutants()[0], next(one for one in mutants() if one.missed)
    rows = [
        Row(first, Outcome(first.found_by[0], "a|b\nc", "emulator"), 2.0),
        Row(missed, Outcome(CORRECT, ""), 3),
    ]
    page = document(rows, 2, ["l1/softmax: race: x"])
    assert f"| {first.name} | {first.task} | {first.found_by[0]} (emulator) | a/b | 2 |" in page
    assert f"| {missed.name} | {missed.task} | NOT FOUND (correct); {missed.missed} |  | 3 |" in page
    assert "- Found: 1 of 2 (50.0%)" in page and "1 of 2 correct\n  - l1/softmax: race: x\n" in page


def test_the_published_page_has_all_mutants() -> None:
    """At least 95 % were found, and as many experts were correct without a patch."""
    page = DOCUMENT.read_text()
    assert [one.name for one in mutants() if f"| {one.name} | {one.task} |" not in page] == []
    for told in (r"- Found: (\d+) of (\d+)", r"- The experts without a patch: (\d+) of (\d+) correct"):
        counts = re.search(told, page)
        assert counts is not None and int(counts[1]) >= LEAST_SHARE * int(counts[2])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["missing_syncthreads.transpose", "store_out_of_bounds.embedding", "deadlock.conv_block"]
)
def test_a_mutant_is_found_by_a_grade(
    name: str, capsys: pytest.CaptureFixture[str], toolchain: Toolchain
) -> None:
    """Built for sm_90 and graded with `quick`, as any project."""
    missing = toolchain.missing("cuda")
    if missing is not None:
        pytest.skip(f"cannot build for sm_90: {missing}")
    assert main(["--only", name]) == 0, capsys.readouterr().out
    assert "found: 1 of 1" in capsys.readouterr().out
