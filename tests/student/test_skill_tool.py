"""Files of skills that a student asks for."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.records import Skill, ToolCall
from harness.student.skill_tool import NO_MORE, READS_LIMIT, RESULT_CHARS, TOOL, Reader

DOCUMENTS = {"SKILL.md": "---\nname: fast\n---\nBe quick.", "references/tiles.md": "Tiles."}
FAST = Skill(
    name="fast", description="Makes it\n  fast.", body="b", files=(), digest="d", documents=DOCUMENTS
)
BROKEN = ("", "{", "[]", "3", '{"skill": "fast"}', '{"skill": 1, "path": "x"}', "[" * 100_000)


def call(arguments: str | dict[str, object], name: str = TOOL.name, number: int = 0) -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(id=f"c{number}", name=name, arguments=text)


def read(path: str, skill: str = "fast") -> tuple[str, tuple[str, ...]]:
    (message,), reads = Reader([FAST]).answer([call({"skill": skill, "path": path})])
    return message.content, reads


@pytest.mark.parametrize("path", ["references/tiles.md", "./references/tiles.md", "references//tiles.md"])
def test_a_file_is_given_as_it_is(path: str) -> None:
    """However its path is spelled; what was read is recorded in one spelling."""
    assert read(path) == ("Tiles.", ("fast/references/tiles.md",))


@pytest.mark.parametrize("path", ["tiles.md", "../other/SKILL.md", "/etc/passwd", "references", "", "\0"])
def test_what_is_not_there_is_answered_with_what_there_is(path: str) -> None:
    """No path leaves the skill: there is nothing but its documents."""
    assert read(path, "slow")[0] == "error: no skill 'slow'; there are: fast"
    text, reads = read(path)
    assert text.startswith("error: fast has no text file") and reads == ()
    assert text.endswith("it has: SKILL.md, references/tiles.md")


@pytest.mark.parametrize(
    ("arguments", "tool", "said"),
    [
        *((text, TOOL.name, "the arguments must be a JSON object") for text in BROKEN),
        ("{}", "bash", "there is no tool 'bash'; there is read_skill_file"),
    ],
)
def test_malformed_calls_are_answered(arguments: str, tool: str, said: str) -> None:
    """The model is told what is wrong."""
    (message,), reads = Reader([FAST]).answer([call(arguments, tool)])
    assert message.content.startswith(f"error: {said}") and reads == ()


def test_parallel_calls_are_all_answered_in_order() -> None:
    """Each by its own id; after the limit with a refusal, and mistakes count."""
    wanted = {"skill": "fast", "path": "SKILL.md"}
    calls = [call(wanted if n % 2 else "{", number=n) for n in range(READS_LIMIT + 2)]
    reader = Reader([FAST])
    messages, reads = reader.answer(calls)
    assert [m.tool_call_id for m in messages] == [c.id for c in calls]
    assert [m.content == NO_MORE for m in messages] == [False] * READS_LIMIT + [True] * 2
    assert reads == ("fast/SKILL.md",) * (READS_LIMIT // 2)
    assert reader.exhausted


def test_a_long_file_is_clipped_and_says_so() -> None:
    """At the stated size."""
    long = FAST.model_copy(update={"documents": {"a.md": "x" * (RESULT_CHARS + 5)}})
    (message,), _ = Reader([long]).answer([call({"skill": "fast", "path": "a.md"})])
    text, _, said = message.content.partition("\n")
    assert (len(text), said) == (
        RESULT_CHARS,
        f"[the first {RESULT_CHARS:,} of {RESULT_CHARS + 5:,} characters]",
    )


@given(st.text(), st.text(), st.text())
def test_whatever_is_called_is_answered(name: str, arguments: str, path: str) -> None:
    """One message per call, and nothing raises."""
    calls = [call(arguments, name), call(arguments), call({"skill": "fast", "path": path})]
    messages, _ = Reader([FAST]).answer(calls)
    assert len(messages) == len(calls)
