"""What a model thought goes back to it as it came: exact request bodies, through the SDKs' own transports."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from harness.models import Model, make_model
from harness.models.anthropic_model import sent_messages
from harness.models.messages import thinking_part
from harness.records import Message, ModelSpec, Project, Reply, Request, Skill, Thinking
from harness.student.answer import Answer, answer
from harness.student.skill_tool import TOOL
from tests.models.answers import anthropic_events, assistant, called, completion, event_stream, user

Ask = Callable[..., Request]

SKILL = Skill(name="s", description="d", body="b", files=(), digest="d", documents={"SKILL.md": "Quick."})
ARGUMENTS = '{"skill": "s", "path": "SKILL.md"}'
PROJECT = "```toml build.toml\n[general]\n```\n"
DECOY = "```toml build.toml\n# thought of\n[general]\n```\n"
THOUGHT = {"type": "thinking", "thinking": f"I look first.\n{DECOY}", "signature": "EqQBCkgIARABGAIiQL=="}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4="}
CALL = {"type": "tool_use", "id": "toolu_1", "name": TOOL.name, "input": json.loads(ARGUMENTS)}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Quick."}


def events(*blocks: dict[str, Any], stop: str = "end_turn") -> Any:
    """A streamed message of these blocks; thinking comes in pieces, its signature last."""
    first, *_, last, end = anthropic_events("", stop)
    sent = [first]
    for index, block in enumerate(blocks):
        begun, deltas = dict(block), list[dict[str, Any]]()
        if block["type"] == "thinking":
            begun |= {"thinking": "", "signature": ""}
            half = len(block["thinking"]) // 2
            pieces = (block["thinking"][:half], block["thinking"][half:])
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
            deltas += [{"type": "signature_delta", "signature": block["signature"]}] * bool(
                block["signature"]
            )
        elif block["type"] == "text":
            begun["text"] = ""
            deltas = [{"type": "text_delta", "text": block["text"]}]
        elif block["type"] == "tool_use":
            begun["input"] = {}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        sent.append({"type": "content_block_start", "index": index, "content_block": begun})
        sent += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        sent.append({"type": "content_block_stop", "index": index})
    kind = {"content-type": "text/event-stream"}
    return httpx2.Response(200, text=event_stream([*sent, last, end]), headers=kind)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def said(**message: Any) -> Any:
    """A chat completion that calls the tool."""
    call = {"id": "call_1", "type": "function", "function": {"name": TOOL.name, "arguments": ARGUMENTS}}
    return httpx2.Response(200, json=completion("tool_calls", content=None, tool_calls=[call], **message))


@pytest.fixture
def claude(script: Any, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A scripted Claude."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    return make_model(ModelSpec(name="anthropic/claude-haiku-4-5"), max_retries=0, http_client=script.client)


@pytest.fixture
def local(script: Any) -> Model:
    """A scripted OpenAI-compatible server."""
    spec = ModelSpec(name="local/deepseek", base_url="http://localhost:8080/v1")
    return make_model(spec, max_retries=0, http_client=script.client)


def bodies(script: Any) -> list[dict[str, Any]]:
    return [json.loads(request.content) for request in script.requests]


def turn(model: Model, request: Request) -> Answer:
    """One turn of a student; replies are read back from JSON, as after an interruption."""
    return answer(request, [SKILL], lambda r: Reply.model_validate_json(model.complete(r).model_dump_json()))


def test_claudes_blocks_go_back_as_they_came(claude: Model, script: Any, ask: Ask) -> None:
    """In order, signature and redacted data included, before the call that they belong to: the whole body."""
    script.answers = [
        events(THOUGHT, REDACTED, text("I read."), CALL, stop="tool_use"),
        events(text(PROJECT)),
    ]
    given = turn(claude, ask(tools=(TOOL,)))
    [first, second] = bodies(script)
    tools = [{"name": TOOL.name, "description": TOOL.description, "input_schema": TOOL.parameters}]
    rest = {
        "model": "claude-haiku-4-5",
        "system": "you write kernels",
        "max_tokens": 16_000,
        "stream": True,
        "tools": tools,
    }
    question = {"role": "user", "content": "write a kernel"}
    assert first == rest | {"messages": [question]}
    assert second == rest | {
        "messages": [
            question,
            {"role": "assistant", "content": [THOUGHT, REDACTED, text("I read."), CALL]},
            {"role": "user", "content": [RESULT]},
        ]
    }
    assert isinstance(given.project, Project) and "# thought of" not in given.project.files[0].text


CUT = THOUGHT | {"signature": ""}


@pytest.mark.parametrize(
    ("blocks", "sent_back"),
    [
        (("One \U0001f600.", THOUGHT, CALL, REDACTED, "Two.", CALL | {"id": "toolu_2"}), 6),
        ((THOUGHT, CALL, CUT), 2),
    ],
    ids=["places", "cut off"],
)
def test_claudes_blocks_keep_their_places(
    claude: Model, script: Any, ask: Ask, blocks: tuple[Any, ...], sent_back: int
) -> None:
    """Between texts and calls; thinking that was cut off has no signature, and stays out."""
    said = [text(block) if isinstance(block, str) else block for block in blocks]
    stop = "tool_use" if sent_back == len(said) else "max_tokens"
    script.answers = [events(*said, stop=stop), events(text(PROJECT))]
    turn(claude, ask(tools=(TOOL,)))
    assert bodies(script)[1]["messages"][1]["content"] == said[:sent_back]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reasoning_content", "I look first."),
        ("reasoning", "I look first."),
        ("reasoning_details", [{"type": "reasoning.encrypted", "data": "c2ln", "index": 0}]),
    ],
)
def test_a_servers_reasoning_goes_back_under_its_own_name(
    local: Model, script: Any, ask: Ask, field: str, value: object
) -> None:
    """In every later request of a conversation with calls and in the next turn, an empty one too."""
    script.answers = [
        said(**{field: value}),
        said(**{field: value[:0]}),  # type: ignore[index]
        httpx2.Response(200, json=completion("stop", content=PROJECT, **{field: value})),
        httpx2.Response(200, json=completion("stop", content="KEEP")),
    ]
    first = turn(local, ask(tools=(TOOL,)))
    update = {"messages": (*first.messages, user("Again.")), "turn": 1, "step": 0}
    turn(local, first.request.model_copy(update=update))
    function = {"name": TOOL.name, "arguments": ARGUMENTS}
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Quick."}
    assert bodies(script)[3]["messages"][2:] == [
        call | {field: value},
        result,
        call | {field: value[:0]},  # type: ignore[index]
        result,
        {"role": "assistant", "content": PROJECT, field: value},
        {"role": "user", "content": "Again."},
    ]


def test_without_tools_nothing_is_kept(claude: Model, local: Model, script: Any, ask: Ask) -> None:
    """One reply, or turns with the skill's body in the prompt: requests and records are what they were."""
    script.answers = [
        events(THOUGHT, text(PROJECT)),
        httpx2.Response(200, json=completion(reasoning_content="hm", content=PROJECT)),
    ]
    for model in (claude, local):
        reply = model.complete(ask())
        assert reply.thinking == () and "thinking" not in reply.model_dump(mode="json")


def test_records_without_thinking_are_written_as_ever() -> None:
    """Old and new look alike; with it they come back from JSON, and the digest covers it."""
    [call] = called("a.md")
    plain = assistant("x", call)
    assert list(plain.model_dump()) == ["role", "content", "tool_calls", "tool_call_id"]
    assert "thinking" not in plain.model_dump_json()
    part = thinking_part({"type": "thinking", "thinking": "half \ud83d", "signature": "s"}, 1)
    thoughtful = plain.model_copy(update={"thinking": (part,)})
    assert Message.model_validate_json(thoughtful.model_dump_json()) == thoughtful
    assert part.block["thinking"] == "half \ufffd"
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
