"""docs/generated/security.md says what the suite expects."""

from __future__ import annotations

import pytest

from tools.attacks.catalogue import all_attacks
from tools.attacks.expected import COLUMNS
from tools.attacks.report import DOCUMENT, disagreements, document
from tools.attacks.session import Observation, Report, dump_report, load_report


def test_the_document_agrees_with_what_is_expected() -> None:
    """The table that is checked in shows every attack, and no result that the suite does not expect."""
    assert disagreements(DOCUMENT.read_text()) == []


def _report(leaked: str) -> Report:
    seen = tuple(
        Observation(one.name, "leaked" if one.name == leaked else "held", "") for one in all_attacks()
    )
    return Report("docker", False, {"engine": "docker 1 | 2"}, 3.0, seen)


def test_a_leak_would_be_seen_in_the_document() -> None:
    """A document written from a run with an unexpected leak disagrees, and so does one that lacks a row."""
    text = document({"docker": _report("net_tcp4"), "bubblewrap": "bwrap is not installed"})
    found = [line for line in disagreements(text) if line.startswith("docker")]
    assert found == ["docker: net_tcp4: got through"]
    assert "bwrap is not installed" in text
    shorter = "\n".join(line for line in text.splitlines() if "`net_tcp4`" not in line)
    assert "net_tcp4: in only one of table and suite" in disagreements(shorter)


def test_a_document_has_no_place_left_to_fill() -> None:
    """Every part of the template is replaced."""
    assert "{{" not in document(dict.fromkeys(COLUMNS, "not here"))


def test_reports_survive_the_way_from_another_process() -> None:
    """A report that a plain user's process has written is read back as it was."""
    report = _report("net_tcp4")
    assert load_report(dump_report(report)) == report
    with pytest.raises((ValueError, KeyError, TypeError)):
        load_report('{"observations": []}')
