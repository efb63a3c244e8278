"""Our records as chat completions have them, and what a completion's message holds.

What a server left out, or sent as another type, is taken as far as it means something and is never an
error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Set
from typing import Any

from harness.models.conversation import INVALID, arguments_object, joined
from harness.models.thinking import FIELDS, part_of
from harness.records import Message, Thinking, Tool, ToolCall


def sent_messages(
    messages: Iterable[Message], thinking: Set[str] = frozenset(FIELDS)
) -> list[dict[str, Any]]:
    """The messages as the API takes them; of what the model thought, the fields that are in `thinking`."""
    return [_sent(message) | _thought(message, thinking) for message in joined(messages)]


def sent_tools(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Tools as the API takes them."""
    return [{"type": "function", "function": tool.model_dump(mode="json")} for tool in tools]


def _sent(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if not message.tool_calls:
        return {"role": message.role, "content": message.content}
    calls = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": _arguments(c)}}
        for c in message.tool_calls
    ]
    return {"role": "assistant", "content": message.content or None, "tool_calls": calls}


def _thought(message: Message, names: Set[str]) -> dict[str, Any]:
    """Under the names that the server itself gave it."""
    return {name: v for part in message.thinking for name, v in part.block.items() if name in names}


def thinking_in(message: object) -> tuple[Thinking, ...]:
    """What the model thought: fields beside the text that no standard knows, kept even where empty."""
    found = {name: value for name in FIELDS if isinstance(value := _part(message, name), str | list)}
    return (part_of(found),) if found else ()


def _arguments(call: ToolCall) -> str:
    """As they were written, where they are an object: local servers parse them, and fail on all else."""
    found = arguments_object(call.arguments)
    return json.dumps(found) if INVALID in found else call.arguments


def text_of(content: object) -> str:
    """The text of a message; some servers send a list of typed parts."""
    if isinstance(content, list):
        return "".join(
            str(part.get("text", ""))
            for part in content
            if isinstance(part, dict) and part.get("type") == "text"
        )
    return content if isinstance(content, str) else ""


def calls_in(message: object) -> Iterator[tuple[object, object, str]]:
    """Id, name and arguments of each call of a tool.

    Local servers leave out ids and types, and send arguments as an object (Ollama's own format).
    Calls that are written out in the text are the text's.
    """
    calls = _part(message, "tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = _part(call, "function")
        if function is None:
            continue
        arguments = _part(function, "arguments")
        if arguments is None:
            arguments = ""
        elif not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        yield _part(call, "id"), _part(function, "name"), arguments


def _part(whole: object, name: str) -> object:
    """A field of what the SDK made of JSON: one of its models, or a dict where it knew none."""
    return whole.get(name) if isinstance(whole, dict) else getattr(whole, name, None)
