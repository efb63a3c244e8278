"""Prompts and replies in the shape that every provider shares.

Unknown counts are None, all text can be written as UTF-8, and every call of a reply has an id of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from pydantic import JsonValue

from harness.models.prices import Price, cost_usd
from harness.records import Message, Reply, Request, Thinking, ToolCall, Usage

INVALID: Final = "invalid_json"
"""Arguments that were no JSON object go back under this name, so that the model sees what it wrote."""

Stop = Literal["end", "length", "refusal", "tool", "overflow", "other"]


def joined(messages: Iterable[Message]) -> list[Message]:
    """The messages without empty answers, and neighbours of one role as one.

    APIs refuse an assistant's message without text and calls (a student that said nothing, and is asked
    again), and many chat templates of local servers refuse two messages of one role in a row.
    """
    found: list[Message] = []
    for message in messages:
        if message.role == "assistant" and not message.content.strip() and not message.tool_calls:
            continue
        last = found[-1] if found else None
        alike = last is not None and last.role == message.role and message.role != "tool"
        if last is not None and alike and not (last.tool_calls or last.thinking or message.thinking):
            parts = [text for text in (last.content, message.content) if text.strip()]
            found[-1] = message.model_copy(update={"content": "\n\n".join(parts)})
        else:
            found.append(message)
    return found


def arguments_object(arguments: str) -> dict[str, JsonValue]:
    """A call's arguments as an object, which is the only thing that APIs and chat templates take back."""
    try:
        found: JsonValue = json.loads(arguments, parse_constant=_refuse)
        # Half a surrogate pair may come out of an escape, and can be sent no further.
        found = json.loads(clean_text(json.dumps(found, ensure_ascii=False)))
    # RecursionError: a reply may hold any number of brackets.
    except (ValueError, RecursionError):
        return {INVALID: arguments}
    return found if isinstance(found, dict) else {INVALID: arguments}


def _refuse(constant: str) -> JsonValue:
    raise ValueError(f"{constant} is no JSON")


class Answer(NamedTuple):
    """What a provider answered, not yet checked."""

    text: str
    stop: Stop
    label: str
    """The model's name in the answer."""
    usage: Usage = Usage()
    cache_write_tokens: int = 0
    """Input tokens that were written to the provider's cache."""
    calls: Sequence[tuple[object, object, str]] = ()
    """Id, name and arguments of each call of a tool."""
    thinking: Sequence[Thinking] = ()


def build_reply(request: Request, answer: Answer, price: Price | None, started: float) -> Reply:
    """The record of an answer that has just arrived. Latency includes the SDK's waits between retries.

    `started`: the `time.monotonic()` at which the model was asked.
    """
    calls = build_calls(request, answer.calls)
    stop = answer.stop
    # `tool` exactly where results are waited for: some servers say `stop`, or nothing, beside calls.
    if calls and stop in ("end", "other"):
        stop = "tool"
    elif stop == "tool" and not calls:
        stop = "other"
    return Reply(
        text=clean_text(answer.text),
        stop=stop,
        model_label=clean_text(answer.label),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        usage=answer.usage,
        cost_usd=cost_usd(price, answer.usage, cache_write_tokens=answer.cache_write_tokens),
        latency_s=time.monotonic() - started,
        tool_calls=calls,
        thinking=tuple(answer.thinking) if request.tools else (),
    )


def build_calls(request: Request, called: Iterable[tuple[object, object, str]]) -> tuple[ToolCall, ...]:
    """The calls in a reply, from (id, name, arguments) as the provider sent them.

    A missing or repeated id is replaced: nine letters and digits, because Mistral's servers take no
    others, and another one in every step, because all calls of a turn stand in one prompt.
    """
    calls: list[ToolCall] = []
    for index, (sent_id, name, arguments) in enumerate(called):
        call_id = clean_text(sent_id) if isinstance(sent_id, str) else ""
        if not call_id or any(call_id == call.id for call in calls):
            call_id = f"c{request.turn % 100:02}{request.step % 1000:03}{index % 1000:03}"
        calls.append(
            ToolCall(
                id=call_id,
                name=clean_text(name) if isinstance(name, str) else "",
                arguments=clean_text(arguments) or "{}",
            )
        )
    return tuple(calls)


def clean_text(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD.

    JSON may hold half of a surrogate pair (a reply cut inside an emoji), which no UTF-8 file can.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def count(value: object) -> int | None:
    """A token count as an SDK hands it on, unvalidated; None unless it is a number of tokens."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def thinking_part(block: Mapping[str, Any], after_text: int = 0, after_calls: int = 0) -> Thinking:
    """A record of what a model thought, which any UTF-8 file can hold."""
    clean = json.loads(clean_text(json.dumps(block, ensure_ascii=False)))
    return Thinking(block=clean, after_text=after_text, after_calls=after_calls)
