"""Where a project's source stands already, on the card and in the reports."""

from __future__ import annotations

import io

from rich.console import Console

from harness.cli.card import print_card
from harness.outcome import Cause
from harness.records import Arm, BinaryCalls, Origin, Provenance, TrialRecord
from harness.records.project import COPIED
from harness.report.evidence import evidence_lines
from harness.report.html import render_html
from harness.report.markdown import report_markdown
from harness.report.summary import summarise
from harness.report.terminal import print_summary
from tests.report import factories as make

ORIGIN = Origin(
    task="l1/rms_norm",
    file="rms_norm_cuda/rms_norm.cu",
    rows=40,
    longest=613,
    source_line=9,
    project_file="k/<b>mine.cu",
    project_line=12,
)
FOUND = Provenance(rows=120, common=60, origin=ORIGIN)
TASKS = make.families(3)
LINE = f"{COPIED}, of the correct trials: without skill 0 of 2, cuda-kernel-builder 1 of 3"


def copied(task: str, arm: Arm, **graded: object) -> TrialRecord:
    """A trial whose project is a copy."""
    return make.trial(task, arm, **({"provenance": FOUND} | graded), build=make.build())  # type: ignore[arg-type]


def with_flags(trial: TrialRecord, *flags: str) -> TrialRecord:
    """The same, flagged so."""
    (turn,) = trial.turns
    assert turn.grade is not None
    grade = turn.grade.model_copy(update={"flags": flags})
    return trial.model_copy(update={"turns": (turn.model_copy(update={"grade": grade}),)})


def trials() -> list[TrialRecord]:
    """Three tasks in two arms: one copy is right, one is not, and counts nowhere."""
    a, b, c = TASKS
    wrong = make.trial(b, make.WITHOUT, Cause.WRONG_VALUES, "w", provenance=FOUND)
    return [
        make.trial(a, make.WITHOUT),
        with_flags(wrong, COPIED),
        make.trial(c, make.WITHOUT),
        with_flags(copied(a, make.WITH), COPIED),
        *(make.trial(task, make.WITH) for task in (b, c)),
    ]


def test_a_report_says_how_many_correct_trials_of_each_arm_are_copies() -> None:
    """In one line, in terminal, page and Markdown; it is no matter of what a library calls."""
    summary = summarise(make.run(TASKS), trials(), TASKS)
    assert LINE in summary.warnings
    assert not any("library calls" in warning for warning in summary.warnings)
    console = Console(file=io.StringIO(), width=200)
    print_summary(summary, console)
    assert isinstance(console.file, io.StringIO)
    assert LINE in console.file.getvalue() and LINE in render_html(summary)
    assert LINE in report_markdown(summary).replace("\\", "")


def test_without_a_correct_copy_nothing_is_said() -> None:
    """A wrong copy is a row of its own, and no line of the report."""
    summary = summarise(make.run(TASKS), [one for one in trials() if not _right(one)], TASKS)
    assert not any(COPIED in warning for warning in summary.warnings)
    assert [row.flags for row in summary.trials if row.flags] == [(COPIED,)]


def _right(trial: TrialRecord) -> bool:
    return trial.grade is not None and trial.grade.copied and bool(trial.grade.correct)


def test_the_row_has_the_flag_and_the_place() -> None:
    """As other flags: before those of the clock, with the evidence in words, cleaned."""
    trial = with_flags(copied(next(iter(TASKS)), make.WITH, flags=("noisy host",)), COPIED)
    summary = summarise(make.run(TASKS), [trial], TASKS)
    (row,) = summary.trials
    assert row.flags == (COPIED, "noisy host")
    assert row.evidence == (
        "60 of its 120 own rows of tokens (50%) stand in kernels_ref, 40 in "
        "l1/rms_norm/rms_norm_cuda/rms_norm.cu; longest stretch 613 tokens, from k/<b>mine.cu:12, "
        "there line 9",
    )
    page = render_html(summary)
    assert COPIED in page and "k/&lt;b&gt;mine.cu:12" in page and "<b>mine" not in page


def test_an_idiom_is_not_worth_a_line() -> None:
    """A few rows stay in the record."""
    few = Provenance(rows=120, common=2, origin=ORIGIN.model_copy(update={"rows": 2, "longest": 16}))
    for found in (few, Provenance(rows=120, common=0)):
        grade = make.trial("l1/f0t0", make.WITH, provenance=found).grade
        assert grade is not None and evidence_lines(grade) == []


def test_the_card_shows_it_without_blaming_the_library() -> None:
    """Names of calls stand beside flags of work alone."""
    build = make.build(calls=BinaryCalls(library=("cublasA",)))
    trial = make.trial("l1/f0t0", make.WITH, provenance=FOUND, build=build)

    def card(*flags: str) -> str:
        console = Console(file=io.StringIO(), width=250)
        grade = with_flags(trial, *flags).grade
        assert grade is not None and isinstance(console.file, io.StringIO)
        print_card(grade, console, "a project")
        return console.file.getvalue()

    assert f"flags: {COPIED}" in card(COPIED) and "cublasA" not in card(COPIED)
    assert f"flags: calls a library, {COPIED} (cublasA)" in card("calls a library", COPIED)
    assert "stand in kernels_ref, 40 in l1/rms_norm" in card(COPIED)
