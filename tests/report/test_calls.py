"""What a library calls, on the card and on the page."""

from __future__ import annotations

import io

from rich.console import Console

from harness.cli.card import print_card
from harness.records import BinaryCalls, TrialRecord
from harness.report.html import render_html
from harness.report.summary import summarise
from tests.report import factories as make

CALLS = BinaryCalls(
    compute=("at::_ops::mm::call", "aten::<b>softmax (by name)"), library=("cublasA", "cublasB", "cublasC")
)
TASKS = make.families(1)


def trial(flags: tuple[str, ...]) -> TrialRecord:
    """A correct trial whose library borrows; `flags` as its task has it."""
    (task,) = TASKS
    timed = make.trial(task, make.WITH, flags=("noisy host",), build=make.build(calls=CALLS))
    (turn,) = timed.turns
    assert turn.grade is not None
    grade = turn.grade.model_copy(update={"flags": flags})
    return timed.model_copy(update={"turns": (turn.model_copy(update={"grade": grade}),)})


def test_flags_about_calls_stand_before_those_of_the_clock():
    """In the row, in the CSV and JSON that are made of it, and as a warning of the report."""
    summary = summarise(make.run(TASKS), [trial(CALLS.flags)], TASKS)
    (row,) = summary.trials
    assert row.flags == ("calls PyTorch operators", "calls a library", "noisy host")
    assert row.calls == CALLS.borrowed
    assert "1 trial flagged for what the built library calls" in summary.warnings
    page = render_html(summary)
    assert "calls PyTorch operators" in page and "at::_ops::mm::call" in page
    assert "aten::&lt;b&gt;softmax" in page and "<b>softmax" not in page


def test_where_a_task_allows_it_nothing_is_said():
    """The evidence stays in the record."""
    summary = summarise(make.run(TASKS), [trial(())], TASKS)
    assert summary.trials[0].flags == ("noisy host",) and summary.trials[0].calls == ()
    assert "at::_ops::mm::call" not in render_html(summary)
    assert not any("library calls" in warning for warning in summary.warnings)


def test_the_card_names_the_first_calls():
    """One line, with the names behind the flags."""

    def card(flags: tuple[str, ...]) -> str:
        console = Console(file=io.StringIO(), width=200)
        grade = trial(flags).grade
        assert grade is not None and isinstance(console.file, io.StringIO)
        print_card(grade, console, "a project")
        return console.file.getvalue()

    assert "flags: calls PyTorch operators, calls a library (at::_ops::mm::call" in card(CALLS.flags)
    assert "cublasB, ...)" in card(CALLS.flags) and "cublasC" not in card(CALLS.flags)
    assert "cublas" not in card(())
