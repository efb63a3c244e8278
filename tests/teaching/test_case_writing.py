"""Test cases by a teacher: which are kept, and what it reads about the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ProviderError
from harness.records import Sampling, Skill
from harness.skills.spec import read_skill
from harness.teaching.case_writing import CASES_FILE, write_cases
from harness.teaching.workshop import Teacher
from tests.fakes.teaching import FakeTeacher, given, skill_text

GOOD = {"id": 1, "prompt": "Which arch?", "assertions": [{"type": "contains", "values": ["sm_90a"]}]}
ECHO = {"id": 2, "prompt": "Say wgmma.", "assertions": [{"type": "contains", "values": ["wgmma"]}]}
PROSE = {"id": 3, "prompt": "Be kind.", "assertions": ["It is kind"]}
COMMAND = {"id": 4, "prompt": "Run it.", "assertions": [{"type": "command", "cmd": "true"}]}


def cases(*entries: Any) -> str:
    """A teacher's reply with these entries."""
    return given(json.dumps({"skill_name": "rows", "evals": entries}) + "\n", CASES_FILE)


def skill(tmp_path: Path) -> Skill:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "SKILL.md").write_text(skill_text("Use sm_90a."))
    return read_skill(tmp_path / "rows")


@pytest.mark.parametrize(
    ("replies", "kept", "refused", "told"),
    [
        ([cases(GOOD)], [1], 0, []),
        ([cases(GOOD, ECHO), cases(GOOD)], [1], 0, ["eval-2: worthless: an echo of the prompt passes it"]),
        ([cases(PROSE, COMMAND), cases(GOOD)], [1], 0, ["nothing is checked", "eval-4: a command is not"]),
        (["Here they are.", cases(GOOD)], [1], 0, ["no file was given"]),
        ([given(skill_text("x")), cases(GOOD)], [1], 0, ["no test cases were given"]),
        ([given("{\n", CASES_FILE), cases(GOOD)], [1], 0, ["evals/evals.json is not JSON"]),
        ([given('[{"input": "x"}]\n', CASES_FILE), cases(GOOD)], [1], 0, ["must be an object"]),
        ([cases(GOOD, ECHO)] * 3, [1], 1, ["eval-2: worthless"]),
        ([cases(ECHO)] * 3, None, 1, ["eval-2: worthless"]),
    ],
)
def test_only_cases_that_prove_something_are_kept(
    tmp_path: Path, replies: list[str], kept: list[int] | None, refused: int, told: list[str]
) -> None:
    """What is wrong goes back to the teacher, twice at most; then the good ones are kept."""
    model = FakeTeacher(replies)
    text, count = write_cases(Teacher(model, Sampling(), tmp_path / "teacher"), skill(tmp_path), 4)
    assert count == refused and len(model.asked) == len(replies)
    assert (None if text is None else [one["id"] for one in json.loads(text)["evals"]]) == kept
    assert "Use sm_90a." in model.asked[0].messages[1].content
    said = "".join(request.messages[-1].content for request in model.asked[1:])
    assert all(words in said for words in told)


def test_a_provider_that_fails_is_no_case(tmp_path: Path) -> None:
    """It ends the writing of cases; the caller keeps the skill."""
    model = FakeTeacher([ProviderError("the server is down")])
    with pytest.raises(ProviderError, match="down"):
        write_cases(Teacher(model, Sampling(), tmp_path / "teacher"), skill(tmp_path), 4)
