"""What each check means for a reply."""

from __future__ import annotations

import pytest

from harness.cases.patterns import occurs
from harness.cases.records import Check, TestCase
from harness.cases.scoring import ALREADY_FAILED, NO_SANDBOX, score, verdict

REPLY = 'Use SM_90a.\n\n```json out/report.json\n{"Ok": true}\n```\n'


def case(*checks: Check) -> TestCase:
    """A case with these checks."""
    return TestCase(id="c", prompt="p", checks=checks)


@pytest.mark.parametrize(
    ("check", "passed"),
    [
        (Check(kind="contains", text="sm_90A"), True),
        (Check(kind="contains", text="sm_80"), False),
        (Check(kind="regex", text=r"^Use SM_\d+a"), True),
        (Check(kind="regex", text=r"^use"), False),
        (Check(kind="file_exists", path="out/report.json"), True),
        (Check(kind="file_exists", path="./out"), True),
        (Check(kind="file_exists", path="report.json"), False),
        (Check(kind="file_contains", path="out/report.json", text='"ok"'), True),
        (Check(kind="file_contains", path="out/report.json", text="SM_90a"), False),
        (Check(kind="file_contains", path="out", text="ok"), False),
    ],
)
def test_checks_of_the_reply_alone(check: Check, passed: bool) -> None:
    """Texts in any case of letters, as upskill compares; expressions as they stand; files by path."""
    [outcome] = score(case(check), REPLY, None)
    assert outcome.passed is passed
    assert bool(outcome.cause) is not passed


def test_a_case_is_passed_when_all_of_it_is() -> None:
    """One failure fails it; without checks nothing is known."""
    good, bad = Check(kind="contains", text="use"), Check(kind="contains", text="never")
    assert verdict(score(case(good, good), REPLY, None)) == "passed"
    assert verdict(score(case(good, bad), REPLY, None)) == "failed"
    assert verdict(score(case(), REPLY, None)) == "not_run"


def test_without_a_sandbox_a_command_is_not_run() -> None:
    """It is neither passed nor failed, unless something else has failed."""
    command = Check(kind="command", text="true", wall_s=1.0)
    outcomes = score(case(command, Check(kind="contains", text="use")), REPLY, None)
    assert [one.passed for one in outcomes] == [None, True]
    assert outcomes[0].cause == NO_SANDBOX and verdict(outcomes) == "not_run"
    outcomes = score(case(command, Check(kind="contains", text="never")), REPLY, None)
    assert outcomes[0].cause == ALREADY_FAILED and verdict(outcomes) == "failed"


def test_an_unsafe_file_is_named_in_the_cause() -> None:
    """Who looks for a file learns why it was left out."""
    reply = "```x a.d/b.txt\n```\n```x a.d\n```\n"
    [outcome] = score(case(Check(kind="file_contains", path="a.d", text="x")), reply, None)
    assert "a folder at once" in outcome.cause


def test_an_expression_that_never_ends_is_a_failure() -> None:
    """It is stopped, and says so."""
    assert occurs("(a+)+$", "a" * 40 + "b", wall_s=0.3) == "the search took longer than 0.3 s"
    assert occurs("b$", "ab\ncd") is True
