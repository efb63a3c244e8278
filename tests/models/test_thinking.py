"""What a model thought goes back to it as it came: exact request bodies, through the SDKs' own transports."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.models import Model
from harness.models.anthropic_model import sent_messages
from harness.models.messages import thinking_part
from harness.records import Message, Project, Reply, Request, Skill, Thinking
from harness.student.answer import Answer, answer
from harness.student.skill_tool import TOOL
from tests.models.answers import answered, assistant, called, completion, says, text_block, user
from tests.models.conftest import Script

Ask = Callable[..., Request]

SKILL = Skill(name="s", description="d", body="b", files=(), digest="d", documents={"SKILL.md": "Quick."})
ARGUMENTS = '{"skill": "s", "path": "SKILL.md"}'
PROJECT = "```toml build.toml\n[general]\n```\n"
DECOY = "```toml build.toml\n# thought of\n[general]\n```\n"
THOUGHT = {"type": "thinking", "thinking": f"I look first.\n{DECOY}", "signature": "EqQBCkgIARABGAIiQL=="}
HIDDEN = {"type": "thinking", "thinking": "", "signature": "c2ln", "news": {"n": [1, None]}}
CUT = THOUGHT | {"signature": ""}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4="}
CALL = {"type": "tool_use", "id": "toolu_1", "name": TOOL.name, "input": json.loads(ARGUMENTS)}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Quick."}
FUNCTION = {"name": TOOL.name, "arguments": ARGUMENTS}
LOCAL_CALL = {"id": "call_1", "type": "function", "function": FUNCTION}


def turn(model: Model, request: Request) -> Answer:
    """One turn of a student; replies are read back from JSON, as after an interruption."""
    return answer(request, [SKILL], lambda r: Reply.model_validate_json(model.complete(r).model_dump_json()))


@pytest.mark.parametrize(
    ("blocks", "sent_back"),
    [
        ((THOUGHT, REDACTED, text_block("I read."), CALL), 4),
        ((text_block("😀."), THOUGHT, CALL, REDACTED, text_block("Two."), CALL | {"id": "toolu_2"}), 6),
        ((HIDDEN, CALL), 2),
        ((THOUGHT, CALL, CUT), 2),
    ],
    ids=["shown and redacted", "places", "hidden", "cut off"],
)
def test_claudes_blocks_go_back_as_they_came(
    claude: Model, script: Script, ask: Ask, blocks: tuple[dict[str, Any], ...], sent_back: int
) -> None:
    """With signatures, unknown fields and places between texts and calls; without what was cut off unsigned.

    No project is read from thinking.
    """
    stop = "tool_use" if sent_back == len(blocks) else "max_tokens"
    script.answers = [says(*blocks, stop=stop), says(text_block(PROJECT))]
    given = turn(claude, ask(tools=(TOOL,)))
    first, second = script.bodies
    results = [RESULT | {"tool_use_id": b["id"]} for b in blocks if b["type"] == "tool_use"]
    added = [{"role": "assistant", "content": list(blocks[:sent_back])}, {"role": "user", "content": results}]
    assert second == first | {"messages": [*first["messages"], *added]}
    assert isinstance(given.project, Project) and "# thought of" not in given.project.files[0].text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reasoning_content", "I look first."),
        ("reasoning", "I look first."),
        ("reasoning_details", [{"type": "reasoning.encrypted", "data": "c2ln", "index": 0}]),
    ],
)
def test_a_servers_reasoning_goes_back_under_its_own_name(
    local: Model, script: Script, ask: Ask, field: str, value: Any
) -> None:
    """In every later request of a conversation with calls and in the next turn, an empty one too."""

    def calls(thought: Any) -> Any:
        message = {"content": None, "tool_calls": [LOCAL_CALL], field: thought}
        return answered(completion("tool_calls", **message))

    script.answers = [
        calls(value),
        calls(value[:0]),
        answered(completion(content=PROJECT, **{field: value})),
        answered(completion(content="KEEP")),
    ]
    first = turn(local, ask(tools=(TOOL,)))
    update = {"messages": (*first.messages, user("Again.")), "turn": 1, "step": 0}
    turn(local, first.request.model_copy(update=update))
    call = {"role": "assistant", "content": None, "tool_calls": [LOCAL_CALL]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Quick."}
    assert script.bodies[3]["messages"][2:] == [
        call | {field: value},
        result,
        call | {field: value[:0]},
        result,
        {"role": "assistant", "content": PROJECT, field: value},
        {"role": "user", "content": "Again."},
    ]


def test_without_tools_nothing_is_kept(claude: Model, local: Model, script: Script, ask: Ask) -> None:
    """Requests and records are what they were before thinking was kept."""
    script.answers = [
        says(THOUGHT, text_block(PROJECT)),
        answered(completion(reasoning_content="hm", content=PROJECT)),
    ]
    for model in (claude, local):
        reply = model.complete(ask())
        assert reply.thinking == () and "thinking" not in reply.model_dump(mode="json")


def test_records_without_thinking_are_written_as_ever() -> None:
    """Old and new look alike; with it they come back from JSON, and the digest covers it."""
    [call] = called("a.md")
    plain = assistant("x", call)
    assert list(plain.model_dump()) == ["role", "content", "tool_calls", "tool_call_id"]
    part = thinking_part({"type": "thinking", "thinking": "half \ud83d", "signature": "s"}, 1)
    assert part.block["thinking"] == "half \ufffd"
    thoughtful = plain.model_copy(update={"thinking": (part,)})
    request = Request(messages=(plain,), sampling={}, task="t", arm="a", repeat=0)  # type: ignore[arg-type]
    other = request.model_copy(update={"messages": (thoughtful,)})
    assert Request.model_validate_json(other.model_dump_json()) == other
    assert request.prompt_digest != other.prompt_digest
    with pytest.raises(ValueError, match="only an assistant thinks"):
        Message(role="user", content="x", thinking=(part,))


def test_one_providers_thinking_is_not_sent_to_another() -> None:
    """Blocks that the Messages API does not know stay out."""
    [call] = called("a.md")
    told = assistant("x", call).model_copy(update={"thinking": (Thinking(block={"reasoning": "hm"}),)})
    [sent] = sent_messages([told])
    assert [block["type"] for block in sent["content"]] == ["text", "tool_use"]
