"""What a pass of a test case is worth."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.cases.commands import Commands
from harness.cases.records import Check, TestCase
from harness.cases.worth import REFUSAL, sentence, worth_of
from sandboxes.pool import StoppableSandbox


def contains(*texts: str) -> tuple[Check, ...]:
    """Checks for texts."""
    return tuple(Check(kind="contains", text=text) for text in texts)


FILES = {"in.csv": "a,b", "odd`name.md": "```\nx\n```"}
CASES = {
    "an echo of the prompt": TestCase(id="1", prompt="Fix the bug", checks=contains("fix", "bug")),
    "an echo of the prompt and its files": TestCase(
        id="2", prompt="p", files=FILES, checks=(Check(kind="file_contains", path="in.csv", text="b"),)
    ),
    "the empty answer": TestCase(id="3", prompt="p", checks=(Check(kind="regex", text="^$"),)),
    "a refusal": TestCase(id="4", prompt="p", checks=contains("help", "request")),
}


@pytest.mark.parametrize("name", CASES)
def test_a_case_that_a_trivial_answer_passes_is_worthless(name: str) -> None:
    """And it says which one."""
    worth = worth_of(CASES[name], None)
    assert (worth.worth, worth.passed_by) == ("none", name)
    assert name in worth.why


def test_a_case_that_checks_nothing_is_worthless() -> None:
    """However many sentences stand in it."""
    worth = worth_of(TestCase(id="c", prompt="p", not_checkable=("It is nice",)), None)
    assert worth.why == "worthless: nothing is checked"


def test_a_case_that_asks_for_what_is_not_in_the_prompt_has_worth() -> None:
    """No trivial answer passes it."""
    assert "sm_90" not in REFUSAL
    assert worth_of(TestCase(id="c", prompt="Which GPU?", checks=contains("sm_90")), None).worth == "some"


def test_a_commands_worth_needs_a_sandbox(sandbox: StoppableSandbox) -> None:
    """Without one it is not known, unless other checks refuse every trivial answer."""
    check = Check(kind="command", text="test -f out.txt || test ! -e in.txt", wall_s=20.0)
    vain = TestCase(id="c", prompt="p", checks=(check,))
    assert worth_of(vain, None).worth == "unknown"
    assert worth_of(vain.model_copy(update={"checks": (check, *contains("sm_90"))}), None).worth == "some"
    commands = Commands(sandbox, Path(sys.executable))
    assert worth_of(vain, commands).worth == "none"
    assert worth_of(vain.model_copy(update={"files": {"in.txt": ""}}), commands).worth == "some"


def test_the_sentence_counts_by_reason() -> None:
    """One line for people."""
    worths = [worth_of(case, None) for case in (*CASES.values(), TestCase(id="x", prompt="p"))]
    assert sentence(worths).startswith("5 of 5 cases prove nothing: an echo of the prompt passes 1")
    assert sentence(worths).endswith("nothing is checked in 1")
    assert sentence([]) == "0 of 0 cases prove nothing: no trivial answer passes one"
