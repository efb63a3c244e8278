"""Text of students and providers is made safe to show; the policy table is whole."""

from __future__ import annotations

from harness.outcome import Cause, Verdict
from harness.text import clean, first_error, first_line, message_of


def test_clean_removes_what_could_drive_a_terminal_or_reorder_a_line() -> None:
    """Whole escape sequences, controls and direction overrides go; text, newlines and tabs stay."""
    assert clean("\x1b[31mred\x1b[0m\x00\x07 a\tb\r\nc\x9b1m\u202egnp.exe") == "red a\tb\nc1mgnp.exe"
    assert clean("\x1b]8;;file:///x\x1b\\link\x1b]8;;\x1b\\") == "link"
    assert clean("µs × 漢字 é\ud800\ufffe") == "µs × 漢字 é"


def test_messages_are_bounded() -> None:
    """A megabyte of compiler output does not enter the report."""
    assert len(message_of("x" * 1_000_000)) == 4_000
    assert len(first_line("\n\n" + "y" * 1_000)) == 300


def test_first_error_finds_compilers_and_linkers() -> None:
    """nvcc, g++ and ld lines are found behind other output; else the first line."""
    assert first_error("building\nk.cu(3): error: expected ;\nmore") == "k.cu(3): error: expected ;"
    assert first_error("[1/2]\nk.cpp:3:1: fatal error: torch.h: No such file").endswith("No such file")
    assert first_error("ld: k.o: undefined reference to `f'").startswith("ld:")
    assert first_error("nothing went right") == "nothing went right"


def test_every_cause_has_a_verdict_and_every_verdict_a_cause() -> None:
    """Causes lead to all verdicts, and to nothing else."""
    assert {cause.verdict for cause in Cause} == set(Verdict)
