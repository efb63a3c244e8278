"""Rounding, cleaning and typography."""

from __future__ import annotations

import pytest

from harness.report import figures as f
from harness.report.effects import Bounded
from harness.report.figures import typeset
from harness.text import clean, first_error, first_line, message_of

NO_INTERVAL = Bounded(low=None, high=None)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (f.percent(None), "n/a"),
        (f.percent(0.0), "0%"),
        (f.percent(0.001), "<1%"),
        (f.percent(0.999), ">99%"),
        (f.percent(1.0), "100%"),
        (f.change("share", -0.004), "0 pts"),
        (f.change("share", 0.26), "+26 pts"),
        (f.change("share", -0.26), "-26 pts"),
        (f.change("ratio", 1.256), "x1.26"),
        (f.lifted("share", 0.26, Bounded(low=0.17, high=0.35)), "+26 pts (+17, +35)"),
        (f.lifted("share", 1.0, NO_INTERVAL), "+100 pts (no interval)"),
        (f.lifted("share", None, NO_INTERVAL), "n/a"),
        (f.level("ratio", 12.34), "12.3x"),
        (f.tokens(None), "unknown"),
        (f.tokens(0), "0"),
        (f.tokens(999), "999"),
        (f.tokens(4_000), "4.0k"),
        (f.tokens(21_300), "21k"),
        (f.tokens(999_600), "1.0M"),
        (f.tokens(-21_300), "-21k"),
        (f.dollars(None), "unknown"),
        (f.dollars(0.0), "$0.00"),
        (f.dollars(0.0314), "$0.031"),
        (f.dollars(-0.0314), "-$0.031"),
        (f.dollars(0.00001), "<$0.0001"),
        (f.dollars(15.066), "$15.07"),
        (f.p_value(0.00001), "<0.001"),
        (f.p_value(None), "n/a"),
        (f.seconds(4.21), "4.2 s"),
        (f.seconds(5_400), "90 min"),
        (f.relative_change(14_000, 21_000), "-33%"),
        (f.relative_change(None, 21_000), "n/a"),
        (f.plural(2, "family"), "2 families"),
        (f.plural(1, "infra failure"), "1 infra failure"),
    ],
)
def test_wording(shown: str, expected: str) -> None:
    """Each figure is rounded once, here, and None is never a number."""
    assert shown == expected


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


def test_typeset_touches_signs_only() -> None:
    """Real minus and multiplication signs; hyphens in names stay."""
    assert typeset("(-3, +19) x1.24 1.31x gpt-5-mini x") == "(−3, +19) ×1.24 1.31× gpt-5-mini x"
