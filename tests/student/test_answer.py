"""One turn of a student."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from harness.outcome import Cause
from harness.records import Finding, Message, Project, Reply, Request, Sampling, Skill, ToolCall
from harness.student.answer import Answer, answer
from harness.student.skill_tool import LATE_LIMIT, NO_MORE, READS_LIMIT, TOOL
from tests.fakes.trials import reply

PROJECT = "```toml build.toml\n[general]\n```\n"
SKILL = Skill(name="s", description="d", body="b", files=(), digest="d", documents={"SKILL.md": "Quick."})
FIRST = Request(
    messages=(Message(role="user", content="Write it."),),
    sampling=Sampling(),
    task="t",
    arm="a",
    repeat=0,
    tools=(TOOL,),
)


def asks(*paths: str, text: str = "") -> Reply:
    """A reply that asks for files."""
    calls = tuple(
        ToolCall(id=f"c{n}", name=TOOL.name, arguments=json.dumps({"skill": "s", "path": path}))
        for n, path in enumerate(paths)
    )
    return reply(text).model_copy(update={"stop": "tool", "tool_calls": calls})


class Script:
    """Answers in order, the last reply for ever, and remembers what it was asked."""

    def __init__(self, *replies: Reply) -> None:
        self._replies: Iterator[Reply] = iter(replies)
        self._last = replies[-1]
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> Reply:
        self.asked.append(request)
        return next(self._replies, self._last)


def take(*replies: Reply, request: Request = FIRST) -> tuple[Answer, Script]:
    script = Script(*replies)
    return answer(request, [SKILL], script), script


def cause(given: Answer) -> Cause:
    assert isinstance(given.project, Finding)
    return given.project.cause


def test_without_calls_one_reply_is_the_answer() -> None:
    """It is asked once, and the exchange ends with what it said."""
    given, script = take(reply(PROJECT))
    assert isinstance(given.project, Project)
    assert (given.steps, len(script.asked)) == ((), 1)
    assert given.messages == (*FIRST.messages, Message(role="assistant", content=PROJECT))


def test_files_are_handed_over_until_it_answers() -> None:
    """Every step is recorded with what it read, and stands in the next prompt."""
    given, script = take(asks("SKILL.md", "no.md", text="Let me see."), asks("SKILL.md"), reply(PROJECT))
    assert isinstance(given.project, Project)
    assert [step.reads for step in given.steps] == [("s/SKILL.md",), ("s/SKILL.md",)]
    assert [step.prompt_digest for step in given.steps] == [r.prompt_digest for r in script.asked[:2]]
    assert [r.step for r in script.asked] == [0, 1, 2]
    roles = [m.role for m in script.asked[2].messages]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    assert script.asked[1].messages[1].content == "Let me see."
    assert script.asked[1].messages[2].content == "Quick."
    assert given.request == script.asked[2]


def test_a_call_comes_before_a_project_beside_it() -> None:
    """The reply is a step; what counts is the reply after it."""
    given, _ = take(asks("SKILL.md", text=PROJECT), reply("I cannot."))
    assert (len(given.steps), cause(given)) == (1, Cause.NO_FILES)


def test_a_loop_of_calls_ends_the_turn() -> None:
    """After the last file it is told to answer, so often and no more."""
    given, script = take(asks("SKILL.md"))
    assert cause(given) is Cause.TOOL_LOOP
    assert len(script.asked) == READS_LIMIT + LATE_LIMIT
    assert len(given.steps) == READS_LIMIT + LATE_LIMIT - 1
    assert sum(len(step.reads) for step in given.steps) == READS_LIMIT
    assert script.asked[-1].messages[-1].content == NO_MORE
    assert given.messages[-1].role == "tool"  # every call is answered, should the exchange go on


def test_after_the_last_file_a_project_beside_a_call_is_the_answer() -> None:
    """Nothing can be read any more, so nothing is waited for."""
    given, _ = take(asks(*["SKILL.md"] * READS_LIMIT), asks("SKILL.md", text=PROJECT))
    assert isinstance(given.project, Project)
    assert [m.content for m in given.messages[-1:]] == [NO_MORE]


def test_without_the_tool_calls_are_no_calls() -> None:
    """A model that calls what it was not offered has answered with its text."""
    given, script = take(asks("SKILL.md", text=PROJECT), request=FIRST.model_copy(update={"tools": ()}))
    assert isinstance(given.project, Project)
    assert len(script.asked) == 1
    assert given.messages[-1] == Message(role="assistant", content=PROJECT)


def test_an_overflow_ends_the_turn() -> None:
    """Also after files were read: nothing more fits."""
    gone = reply("").model_copy(update={"stop": "overflow"})
    given, _ = take(asks("SKILL.md"), gone)
    assert (cause(given), given.reply.stop, len(given.steps)) == (Cause.CONTEXT_OVERFLOW, "overflow", 1)


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ("KEEP", True),
        (" KEEP\n", True),
        ("keep", False),
        ("I KEEP it", False),
        (" \n", False),
        (f"{PROJECT}KEEP", False),
    ],
)
def test_only_the_bare_line_keeps(text: str, keeps: bool) -> None:
    """Words around it, or a project, are another answer; an empty one is sent back with words in it."""
    given, _ = take(reply(text))
    assert given.keeps is keeps
    assert given.messages[-1].content == (text if text.strip() else "(no text)")
