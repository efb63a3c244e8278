"""Rounding and typography."""

from __future__ import annotations

import pytest

from harness.report import figures
from harness.report.comparison_schema import Bounded
from harness.report.figures import typeset

NO_INTERVAL = Bounded(low=None, high=None)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (figures.percent(None), "n/a"),
        (figures.percent(0.001), "<1%"),
        (figures.change("share", -0.004), "0 pts"),
        (figures.change("ratio", 1.256), "x1.26"),
        (figures.lifted("share", 0.26, Bounded(low=0.17, high=0.35)), "+26 pts (+17, +35)"),
        (figures.lifted("share", 1.0, NO_INTERVAL), "+100 pts (no interval)"),
        (figures.tokens(None), "unknown"),
        (figures.tokens(21_300), "21k"),
        (figures.dollars(None), "unknown"),
        (figures.dollars(-0.0314), "-$0.031"),
        (figures.dollars(0.00001), "<$0.0001"),
        (figures.p_value(0.00001), "<0.001"),
        (figures.seconds(4.21), "4.2 s"),
        (figures.relative_change(14_000, 21_000), "-33%"),
        (figures.plural(2, "family"), "2 families"),
        (figures.bar(0.5, 4), "██"),
        (figures.bar(0.001, 4), "▏"),
        (figures.bar(0.7, 4), "██▊"),
        (figures.bar(0.0, 4), ""),
        (figures.bar(9.0, 4), "████"),
        (figures.ascii_bar(0.001, 4), "#"),
        (typeset("(-3, +19) x1.24 1.31x gpt-5-mini x"), "(−3, +19) ×1.24 1.31× gpt-5-mini x"),
    ],
)
def test_wording(shown: str, expected: str) -> None:
    """Each figure is rounded once, here, and None is never a number; typography touches signs only."""
    assert shown == expected
