"""Claude, through Anthropic's SDK: our records as the Messages API has them, and its streamed events.

The results of one message's calls go back in one user message, before its text; the arguments of a call are
kept as they were written, valid or not; thinking goes back as it came, signature and place included.
`input_tokens` is the whole prompt, cached or not, as for every other provider.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final

import anthropic
from anthropic import Stream
from anthropic.types import RawMessageStreamEvent

from harness.models import ModelOptions
from harness.models.endpoint import SdkModel, broken_reply, vendor_endpoint
from harness.models.messages import (
    Answer,
    Stop,
    arguments_object,
    clean_text,
    count,
    joined,
    thinking_part,
)
from harness.records import Message, ModelSpec, Request, Thinking, Tool, Usage

# The last API version that takes a temperature; from 2026-10-21 on, which SDK 2.0 sends, it is an error.
# Source: the SDK's migration guide.
_VERSION_WITH_TEMPERATURE = "2023-06-01"

_STOPS: Final[dict[str, Stop]] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "tool_use": "tool",
}
_THINKING: Final = ("thinking", "redacted_thinking")


class AnthropicModel(SdkModel):
    """A Claude model; the key is ANTHROPIC_API_KEY. The API has no sampling seeds; none is sent."""

    sdk: ClassVar = anthropic
    sdk_errors = anthropic.AnthropicError
    default_url = "https://api.anthropic.com"

    def __init__(self, spec: ModelSpec, options: ModelOptions) -> None:
        endpoint = vendor_endpoint(spec, options, "ANTHROPIC", self.default_url)
        super().__init__(spec, endpoint, anthropic.Anthropic)

    def _ask(self, request: Request) -> Answer:
        message = self._stream(request)
        if message.stop_reason is None:
            raise broken_reply(self._endpoint, "the stream ended before the message did")
        usage, written = _usage(message.counts)
        return Answer(
            message.text,
            _STOPS.get(str(message.stop_reason), "other"),
            str(message.model or self._model),
            usage,
            written,
            message.calls,
            message.thinking,
        )

    def _stream(self, request: Request) -> Incoming:
        # Streamed, because the SDK refuses to wait for long replies in one piece.
        sampling = request.sampling
        arguments: dict[str, Any] = {"max_tokens": sampling.max_output_tokens}
        system = system_text(request.messages)
        if system:
            arguments["system"] = system
        if request.tools:
            arguments["tools"] = sent_tools(request.tools)
        if sampling.temperature is not None:
            arguments["extra_body"] = {"temperature": sampling.temperature}
            arguments["extra_headers"] = {"anthropic-version": _VERSION_WITH_TEMPERATURE}
        turns: list[Any] = sent_messages(request.messages)
        events: Stream[RawMessageStreamEvent] = self._client.messages.create(
            model=self._model, messages=turns, stream=True, **arguments
        )
        message = Incoming()
        with events:
            for event in events:
                message.add(event)
        return message


def _usage(counts: dict[str, object]) -> tuple[Usage, int]:
    """Token counts, and how many input tokens were written to the cache (a part of the input)."""
    fresh = count(counts.get("input_tokens"))
    read = count(counts.get("cache_read_input_tokens"))
    written = count(counts.get("cache_creation_input_tokens")) or 0
    details = counts.get("output_tokens_details")
    usage = Usage(
        # The API's input_tokens excludes what was read from, or written to, the cache.
        input_tokens=None if fresh is None else fresh + (read or 0) + written,
        cached_input_tokens=read,
        output_tokens=count(counts.get("output_tokens")),
        reasoning_tokens=count(details.get("thinking_tokens") if isinstance(details, dict) else None),
    )
    return usage, written


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


class Incoming:
    """A message as far as its events have arrived.

    Not the SDK's own accumulator: that one raises ValueError where a call's arguments are broken JSON,
    and the reply would be lost with it. The SDK validates nothing, so unknown events are ignored.
    """

    def __init__(self) -> None:
        self.model: str | None = None
        self.stop_reason: str | None = None
        self.counts: dict[str, object] = {}
        """Of tokens; a later event's replaces an earlier one's."""
        self._blocks: dict[object, dict[str, Any]] = {}

    @property
    def text(self) -> str:
        """Without thinking."""
        return "".join(block.get("text") or "" for block in self._of("text"))

    @property
    def calls(self) -> list[tuple[object, object, str]]:
        """Id, name and arguments of each call, in order, the arguments as they were written."""
        return [
            (c.get("id"), c.get("name"), c.get("partial_json") or json.dumps(c.get("input") or {}))
            for c in self._of("tool_use")
        ]

    @property
    def thinking(self) -> tuple[Thinking, ...]:
        """All of it, with its place in the reply."""
        found: list[Thinking] = []
        text, calls = "", 0
        for block in self._of("text", "tool_use", *_THINKING):
            text += (block.get("text") or "") if block["type"] == "text" else ""
            calls += block["type"] == "tool_use"
            if block["type"] in _THINKING:
                found.append(thinking_part(block, len(clean_text(text)), calls))
        return tuple(found)

    def _of(self, *kinds: str) -> Iterator[dict[str, Any]]:
        return (block for block in self._blocks.values() if block.get("type") in kinds)

    def add(self, event: Any) -> None:
        """Take one event."""
        kind, index = getattr(event, "type", None), getattr(event, "index", None)
        delta = _fields(getattr(event, "delta", None))
        if kind == "message_start":
            message = getattr(event, "message", None)
            self.model = getattr(message, "model", None)
            self._count(message)
        elif kind == "message_delta":
            self.stop_reason = delta.get("stop_reason") or self.stop_reason
            self._count(event)
        elif kind == "content_block_start":
            self._blocks[index] = _fields(getattr(event, "content_block", None))
        elif kind == "content_block_delta" and index in self._blocks:
            block = self._blocks[index]
            for name in ("text", "partial_json", "thinking", "signature"):
                if delta.get(name):
                    block[name] = (block.get(name) or "") + delta[name]

    def _count(self, holder: object) -> None:
        counts = _fields(getattr(holder, "usage", None))
        self.counts |= {name: value for name, value in counts.items() if value is not None}


def _fields(part: Any) -> dict[str, Any]:
    """What the SDK made of a JSON object, as it was sent, unknown fields included."""
    return part.to_dict(mode="python") if hasattr(part, "to_dict") else {}
