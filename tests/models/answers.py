"""Answers as the two APIs send them, for tests that ask the same of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx2

from harness.records import Message, Tool, ToolCall

READ = Tool(
    name="read_file",
    description="Read a file of the skill.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)

_DELTAS = {
    "text": ("text", "text_delta", "text"),
    "thinking": ("thinking", "thinking_delta", "thinking"),
    "tool_use": ("input", "input_json_delta", "partial_json"),
}
"""Type of a block -> its field, the type of its pieces, and their field."""


def called(*paths: str) -> tuple[ToolCall, ...]:
    """Calls of `read_file`, as they stand in a reply."""
    return tuple(
        ToolCall(id=f"call_{i}", name="read_file", arguments=json.dumps({"path": path}))
        for i, path in enumerate(paths)
    )


def result(call: ToolCall, text: str) -> Message:
    """What a call is answered with."""
    return Message(role="tool", content=text, tool_call_id=call.id)


def user(text: str) -> Message:
    """A user's message."""
    return Message(role="user", content=text)


def assistant(text: str, *calls: ToolCall) -> Message:
    """A model's message."""
    return Message(role="assistant", content=text, tool_calls=calls)


def text_block(text: str) -> dict[str, Any]:
    """A block of Anthropic's API."""
    return {"type": "text", "text": text}


def anthropic_events(*blocks: dict[str, Any], stop: str | None = "end_turn") -> list[dict[str, Any]]:
    """The events of one message; what a block holds comes in two pieces, its signature last.

    A call's `input` may be text, which is sent as it is.
    """
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-4-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 600, "cache_read_input_tokens": 0, "output_tokens": 1},
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(blocks):
        begun, deltas = dict(block), list[dict[str, Any]]()
        if block["type"] in _DELTAS:
            field, kind, name = _DELTAS[block["type"]]
            whole = block[field] if isinstance(block[field], str) else json.dumps(block[field])
            begun[field] = {} if field == "input" else ""
            deltas = [{"type": kind, name: piece} for piece in (whole[:4], whole[4:]) if piece]
        if block.get("signature"):
            begun["signature"] = ""
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ending, "usage": {"output_tokens": 500}})
    return [*events, {"type": "message_stop"}]


def event_stream(events: Sequence[dict[str, Any]]) -> str:
    """Events as they go over the wire."""
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def streamed(events: Sequence[dict[str, Any]]) -> httpx2.Response:
    """An answer of Anthropic's."""
    return httpx2.Response(200, text=event_stream(events), headers={"content-type": "text/event-stream"})


def says(*blocks: dict[str, Any], stop: str = "end_turn") -> httpx2.Response:
    """A message of Claude's."""
    return streamed(anthropic_events(*blocks, stop=stop))


def anthropic_error(message: str) -> dict[str, Any]:
    """The body of a refusal."""
    return {"type": "error", "error": {"type": "some_error", "message": message}}


def completion(finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    """A chat completion; `message` replaces the message's fields."""
    whole = {"role": "assistant", "content": "a project", "refusal": None} | message
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "gpt-5-mini",
        "choices": [{"index": 0, "finish_reason": finish, "message": whole}],
        "usage": {
            "prompt_tokens": 600,
            "completion_tokens": 500,
            "total_tokens": 1100,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def answered(body: object, status: int = 200, **headers: str) -> httpx2.Response:
    """A JSON answer. Not `json=`, which would refuse half a surrogate pair."""
    kind = {"content-type": "application/json"}
    return httpx2.Response(status, text=json.dumps(body), headers=kind | headers)


def openai_error(message: str, **fields: Any) -> dict[str, Any]:
    """The body of a refusal."""
    return {"error": {"message": message, "type": "invalid_request_error", **fields}}
