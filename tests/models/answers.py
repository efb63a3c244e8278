"""Answers as the two APIs send them, for tests that ask the same of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from harness.records import Message, Tool, ToolCall

READ = Tool(
    name="read_file",
    description="Read a file of the skill.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


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


def anthropic_events(
    text: str = "a project",
    stop: str | None = "end_turn",
    calls: Sequence[tuple[str, str, Sequence[str]]] = (),
    thinking: str = "",
) -> list[dict[str, Any]]:
    """The events of one message; a call is its id, its name and the pieces of its arguments."""
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if thinking:
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        blocks.append((empty, [{"type": "thinking_delta", "thinking": thinking}]))
    if text:
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": text}]))
    for call_id, name, pieces in calls:
        started = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        blocks.append((started, [{"type": "input_json_delta", "partial_json": p} for p in pieces]))
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
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": ending, "usage": {"output_tokens": 500}})
    return [*events, {"type": "message_stop"}]


def event_stream(events: Sequence[dict[str, Any]]) -> str:
    """Events as they go over the wire."""
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def anthropic_error(kind: str, message: str) -> dict[str, Any]:
    """The body of a refusal."""
    return {"type": "error", "error": {"type": kind, "message": message}}


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


def openai_error(message: str, **fields: Any) -> dict[str, Any]:
    """The body of a refusal."""
    return {"error": {"message": message, "type": "invalid_request_error", **fields}}
