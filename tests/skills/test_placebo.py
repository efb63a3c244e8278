"""Placebos: as long as the skill and formatted like it, about something else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.files import data_directory
from harness.records import Skill
from harness.skills.placebo import placebo
from harness.skills.spec import read_skill

SHIPPED = sorted(path.parent for path in data_directory("skills").glob("*/SKILL.md"))


def _frame(markdown: str) -> list[str]:
    """Of each line what is no word: blank, fence, table, heading, list, text."""
    kinds = []
    for line in markdown.split("\n"):
        start = re.match(r"\s*(`{3,}|#{1,6} |[-*+] |\d+[.)] |\|)?", line)
        kinds.append(f"{bool(line.strip())} {start[1] if start else ''}")
    return kinds


@pytest.mark.parametrize("directory", SHIPPED, ids=lambda path: path.name)
def test_it_is_as_long_and_has_the_same_format(directory: Path) -> None:
    """Within 3 % of the bytes; headings, lists, tables, fences and blank lines stay, and no word does."""
    skill = read_skill(directory)
    other = placebo(skill)
    assert abs(len(other.body.encode()) / len(skill.body.encode()) - 1) <= 0.03
    without_code = re.compile(r"```.*?```", re.S)
    assert _frame(without_code.sub("", other.body)) == _frame(without_code.sub("", skill.body))
    assert other.body.count("```") == skill.body.count("```")
    assert len(other.documents) == len(skill.documents)
    assert not (other.documents.keys() & skill.documents.keys()) - {"SKILL.md"}
    assert abs(len(other.description) - len(skill.description)) <= 10
    left = set(re.findall(r"[a-z_]{5,}", other.body.lower()))
    for word in ("kernel", "build", "torch", "register", "memory", "vector", "warp", "__syncthreads", "cuda"):
        assert not any(word in one for one in left), word


def test_it_is_a_function_of_the_skill() -> None:
    """The same skill has the same placebo; another one, or another place in the prompt, has another."""
    skill = Skill(name="a", description="About a.", body="# A\n\nSome text of it.\n", files=(), digest="1")
    assert placebo(skill) == placebo(skill)
    assert placebo(skill).digest not in (skill.digest, placebo(skill, 1).digest)
    assert placebo(skill).name != placebo(skill, 1).name
    assert placebo(skill.model_copy(update={"digest": "2"})).digest != placebo(skill).digest


def test_odd_markdown_is_no_crash() -> None:
    """Unclosed fences, empty bodies and lone marks give something of the same number of lines."""
    for body in ("", "\n\n", "```", "```cpp\nint x;", "|", "| a |\n|---|", "#", "- ", "~~~\n```\n~~~\n1) x"):
        skill = Skill(name="a", description="d", body=body, files=(), digest=body)
        assert placebo(skill).body.count("\n") == body.count("\n")
