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
from harness.models.meter import Meter
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


def following(given: Answer, words: str = "Again.") -> Request:
    """The request of the next turn."""
    update = {"messages": (*given.messages, user(words)), "turn": 1, "step": 0}
    return given.request.model_copy(update=update)


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


HIDDEN = {"type": "thinking", "thinking": "", "signature": "c2ln", "news": {"n": [1, None]}}
CUT = THOUGHT | {"signature": ""}


@pytest.mark.parametrize(
    ("blocks", "sent_back"),
    [
        (("One \U0001f600.", THOUGHT, CALL, REDACTED, "Two.", CALL | {"id": "toolu_2"}), 6),
        ((HIDDEN, CALL), 2),
        ((THOUGHT, CALL, CUT), 2),
    ],
    ids=["places", "hidden", "cut off"],
)
def test_claudes_blocks_keep_their_places(
    claude: Model, script: Any, ask: Ask, blocks: tuple[Any, ...], sent_back: int
) -> None:
    """Between texts and calls, with unknown fields; thinking that was cut off has no signature."""
    said = [text(block) if isinstance(block, str) else block for block in blocks]
    stop = "tool_use" if sent_back == len(said) else "max_tokens"
    script.answers = [events(*said, stop=stop), events(text(PROJECT))]
    turn(claude, ask(tools=(TOOL,)))
    assert bodies(script)[1]["messages"][1]["content"] == said[:sent_back]


def test_the_next_turn_still_holds_what_was_thought(claude: Model, script: Any, ask: Ask) -> None:
    """Of the last answer too; one that was cut off while it thought has no signature, and stays out."""
    script.answers = [
        events(THOUGHT, CALL, stop="tool_use"),
        events(REDACTED, text(PROJECT)),
        events(CUT, stop="max_tokens"),
        events(text(PROJECT)),
    ]
    first = turn(claude, ask(tools=(TOOL,)))
    second = turn(claude, following(first))
    turn(claude, following(second))
    _, *answers = [m["content"] for m in bodies(script)[3]["messages"] if m["role"] == "assistant"]
    assert bodies(script)[3]["messages"][1]["content"] == [THOUGHT, CALL]
    assert answers == [[REDACTED, text(PROJECT)], "(no text)"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_a_servers_reasoning_goes_back_under_its_own_name(
    local: Model, script: Any, ask: Ask, field: str
) -> None:
    """DeepSeek wants it in every later request of a conversation with calls, an empty one too."""
    script.answers = [
        said(**{field: "I look first."}),
        said(**{field: ""}),
        httpx2.Response(200, json=completion("stop", content=PROJECT, **{field: "Now."})),
        httpx2.Response(200, json=completion("stop", content="KEEP")),
    ]
    first = turn(local, ask(tools=(TOOL,)))
    turn(local, following(first))
    function = {"name": TOOL.name, "arguments": ARGUMENTS}
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Quick."}
    assert bodies(script)[3] == {
        "model": "deepseek",
        "max_tokens": 16_000,
        "tools": [{"type": "function", "function": TOOL.model_dump(mode="json")}],
        "messages": [
            {"role": "system", "content": "you write kernels"},
            {"role": "user", "content": "write a kernel"},
            call | {field: "I look first."},
            result,
            call | {field: ""},
            result,
            {"role": "assistant", "content": PROJECT, field: "Now."},
            {"role": "user", "content": "Again."},
        ],
    }


def test_signed_details_go_back(local: Model, script: Any, ask: Ask) -> None:
    """OpenRouter's list, in which providers' signatures are."""
    details = [{"type": "reasoning.encrypted", "data": "c2ln", "index": 0}]
    script.answers = [said(reasoning=None, reasoning_details=details), said()]
    with pytest.raises(IndexError):  # a third answer is asked for, and none is there
        turn(local, ask(tools=(TOOL,)))
    sent = bodies(script)[1]["messages"][2]
    assert sent["reasoning_details"] == details and "reasoning" not in sent


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


def test_what_goes_back_is_in_the_estimate(ask: Ask) -> None:
    """A budget reserves for it like for the rest of the prompt."""

    class Uncounted:
        name = "local/x"

        def complete(self, request: Request) -> Reply:
            """A reply without counts."""
            return Reply(text="", stop="end", model_label="x", created="now")

    estimates = []
    for part in ((), (Thinking(block={"reasoning": "hm " * 1000}),)):
        meter = Meter()
        told = (user("x"), Message(role="assistant", content="y", thinking=part))
        meter.wrap(Uncounted()).complete(ask().model_copy(update={"messages": told}))
        estimates.append(meter.spent.estimated_tokens)
    assert estimates[1] - estimates[0] > 500
