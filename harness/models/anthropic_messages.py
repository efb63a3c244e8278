"""Our records as Anthropic's Messages API has them, and its streamed events as a message.

The results of one message's calls go back in one user message, before its text; the arguments of a call are
kept as they were written, valid or not; thinking goes back as it came, signature and place included.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.models.conversation import arguments_object, joined
from harness.models.reply import clean_text
from harness.models.thinking import part_of
from harness.records import Message, Thinking, Tool

_THINKING: Final = ("thinking", "redacted_thinking")

_COUNTS: Final = (
    "input_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "output_tokens",
    "output_tokens_details",
)


def system_text(messages: Iterable[Message]) -> str:
    """The system text, which goes apart from the messages."""
    return "\n\n".join(m.content for m in messages if m.role == "system")


def sent_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """All but the system text, as the API takes it."""
    sent: list[dict[str, Any]] = []
    for message in joined(m for m in messages if m.role != "system"):
        role = "assistant" if message.role == "assistant" else "user"
        if not sent or sent[-1]["role"] != role:
            sent.append({"role": role, "content": []})
        sent[-1]["content"] += _blocks(message)
    for one in sent:
        blocks = one["content"]
        # The API refuses a text before a result. (The sort is stable.)
        blocks.sort(key=lambda block: block["type"] != "tool_result")
        if len(blocks) == 1 and blocks[0]["type"] == "text":
            one["content"] = blocks[0]["text"]
    return sent


def sent_tools(tools: Iterable[Tool]) -> list[dict[str, Any]]:
    """Tools as the API takes them."""
    return [{"name": t.name, "description": t.description, "input_schema": t.parameters} for t in tools]


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id}
        return [result | ({"content": message.content} if message.content else {})]
    blocks: list[dict[str, Any]] = []
    text, calls = 0, 0
    for part in message.thinking:
        if part.block.get("type") in _THINKING:
            blocks += _between(message, slice(text, part.after_text), slice(calls, part.after_calls))
            blocks.append(dict(part.block))
            text, calls = part.after_text, part.after_calls
    return blocks + _between(message, slice(text, None), slice(calls, None))


def _between(message: Message, text: slice, calls: slice) -> list[dict[str, Any]]:
    """A part of what was said, then of what was called."""
    words = message.content[text]
    # The API refuses empty text.
    said: list[dict[str, Any]] = [{"type": "text", "text": words}] if words.strip() else []
    return said + [
        {"type": "tool_use", "id": c.id, "name": c.name, "input": arguments_object(c.arguments)}
        for c in message.tool_calls[calls]
    ]


@dataclass
class _Call:
    id: object
    name: object
    input: object
    """What came at once; the pieces, where there are any, replace it."""
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        at_once = self.input if isinstance(self.input, dict) else {}
        return "".join(self.pieces) or json.dumps(at_once, ensure_ascii=False)


@dataclass
class _Thought:
    block: dict[str, Any]
    texts: int
    """Pieces of text before it."""
    calls: int


class Incoming:
    """A message as far as its events have arrived.

    Not the SDK's own accumulator: that one raises ValueError where a call's arguments are broken JSON,
    and the reply would be lost with it.
    """

    def __init__(self) -> None:
        self.begun = False
        self.model: str | None = None
        self.stop_reason: str | None = None
        self.counts: dict[str, object] = {}
        """Of tokens; a later event's replaces an earlier one's."""
        self._texts: list[str] = []
        self._calls: dict[object, _Call] = {}
        self._thoughts: dict[object, _Thought] = {}

    @property
    def text(self) -> str:
        """Without thinking."""
        return "".join(self._texts)

    @property
    def thinking(self) -> tuple[Thinking, ...]:
        """All of it, whole, with its place in the reply."""
        return tuple(
            part_of(one.block, len(clean_text("".join(self._texts[: one.texts]))), one.calls)
            for one in self._thoughts.values()
        )

    @property
    def calls(self) -> Sequence[tuple[object, object, str]]:
        """Id, name and arguments of each call, in order."""
        return [(call.id, call.name, call.arguments) for call in self._calls.values()]

    def add(self, event: Any) -> None:
        """Take one event. The SDK validates none, and new kinds may come: what is unknown is passed over."""
        kind = getattr(event, "type", None)
        if kind == "message_start":
            message = getattr(event, "message", None)
            self.begun = True
            self.model = getattr(message, "model", None)
            self._count(message)
        elif kind == "message_delta":
            reason = getattr(getattr(event, "delta", None), "stop_reason", None)
            self.stop_reason = reason or self.stop_reason
            self._count(event)
        elif kind == "content_block_start":
            self._start(getattr(event, "index", None), getattr(event, "content_block", None))
        elif kind == "content_block_delta":
            self._extend(getattr(event, "index", None), getattr(event, "delta", None))

    def _count(self, holder: object) -> None:
        usage = getattr(holder, "usage", None)
        found = {name: getattr(usage, name, None) for name in _COUNTS}
        self.counts |= {name: value for name, value in found.items() if value is not None}

    def _start(self, index: object, block: Any) -> None:
        kind = getattr(block, "type", None)
        if kind == "text":
            self._texts.append(getattr(block, "text", None) or "")
        elif kind == "tool_use":
            call_id, name = getattr(block, "id", None), getattr(block, "name", None)
            self._calls[index] = _Call(call_id, name, getattr(block, "input", None))
        elif kind in _THINKING:
            # As it was sent, fields that the SDK does not know included.
            whole = block.to_dict(mode="python") if hasattr(block, "to_dict") else {"type": kind}
            self._thoughts[index] = _Thought(whole, len(self._texts), len(self._calls))

    def _extend(self, index: object, delta: Any) -> None:
        kind = getattr(delta, "type", None)
        if kind == "text_delta":
            self._texts.append(getattr(delta, "text", None) or "")
        elif kind == "input_json_delta" and index in self._calls:
            self._calls[index].pieces.append(getattr(delta, "partial_json", None) or "")
        elif kind in ("thinking_delta", "signature_delta") and index in self._thoughts:
            block, name = self._thoughts[index].block, kind.removesuffix("_delta")
            block[name] = (block.get(name) or "") + (getattr(delta, name, None) or "")
