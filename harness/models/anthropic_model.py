"""Claude, through Anthropic's SDK: our records as the Messages API has them, and its streamed events.

The results of one message's calls go back in one user message, before its text; the arguments of a call are
kept as they were written, valid or not; thinking goes back as it came, signature and place included.
`input_tokens` is the whole prompt, cached or not, as for every other provider.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
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
from harness.records import Message, ModelSpec, Request, Thinking, Usage

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
        return message.answer(self._model)

    def _stream(self, request: Request) -> Incoming:
        # Streamed, because the SDK refuses to wait for long replies in one piece.
        sampling = request.sampling
        arguments: dict[str, Any] = {"max_tokens": sampling.max_output_tokens}
        system = system_text(request.messages)
        if system:
            arguments["system"] = system
        if request.tools:
            arguments["tools"] = [
                {"name": t.name, "description": t.description, "input_schema": t.parameters}
                for t in request.tools
            ]
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
        self.stop_reason: str | None = None
        self._model: str | None = None
        self._counts: dict[str, object] = {}
        """Of tokens; a later event's replaces an earlier one's."""
        self._blocks: dict[object, dict[str, Any]] = {}

    def answer(self, model: str) -> Answer:
        """What was said; `model` is its name where the events hold none."""
        text = ""
        calls: list[tuple[object, object, str]] = []
        thinking: list[Thinking] = []
        for block in self._blocks.values():
            kind = block.get("type")
            if kind == "text":
                text += block.get("text") or ""
            elif kind == "tool_use":
                written = block.get("partial_json") or json.dumps(block.get("input") or {})
                calls.append((block.get("id"), block.get("name"), written))
            elif kind in _THINKING:
                thinking.append(thinking_part(block, len(clean_text(text)), len(calls)))
        usage, cache_written = _usage(self._counts)
        stop = _STOPS.get(str(self.stop_reason), "other")
        return Answer(text, stop, str(self._model or model), usage, cache_written, calls, thinking)

    def add(self, event: Any) -> None:
        """Take one event."""
        kind, index = getattr(event, "type", None), getattr(event, "index", None)
        delta = _fields(getattr(event, "delta", None))
        if kind == "message_start":
            message = getattr(event, "message", None)
            self._model = getattr(message, "model", None)
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
        self._counts |= {name: value for name, value in counts.items() if value is not None}


def _fields(part: Any) -> dict[str, Any]:
    """What the SDK made of a JSON object, as it was sent, unknown fields included."""
    return part.to_dict(mode="python") if hasattr(part, "to_dict") else {}
