"""docs/generated/emulated_instructions.md."""

from __future__ import annotations

from harness.device.emulated.instructions import GROUPS, find
from tools.emulated_instructions import PAGE, REFUSED, page


def test_the_page_is_up_to_date() -> None:
    """It says what the tables say; `python -m tools.emulated_instructions` writes it."""
    assert PAGE.read_text() == page()


def test_what_the_page_calls_not_implemented_is_refused() -> None:
    """No table has a row for it."""
    assert set(REFUSED) <= set(GROUPS)
    assert [one for examples in REFUSED.values() for one in examples if find(one)] == []
