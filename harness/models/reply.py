"""Builds the Reply record from what a provider's SDK returned.

Unknown counts are None, all text can be written as UTF-8, and every call of a reply has an id of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Literal

from harness.records import Reply, Request, Thinking, ToolCall, Usage

Stop = Literal["end", "length", "refusal", "tool", "overflow", "other"]


def build_reply(
    text: str,
    stop: Stop,
    *,
    label: str,
    usage: Usage,
    cost_usd: float | None,
    started: float,
    tool_calls: Sequence[ToolCall] = (),
    thinking: Sequence[Thinking] = (),
) -> Reply:
    """A reply that has just arrived; `started` is the `time.monotonic()` at which it was asked for.

    Latency includes the SDK's waits between retries.
    """
    return Reply(
        text=clean_text(text),
        stop=_stop(stop, tool_calls),
        model_label=clean_text(label),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        usage=usage,
        cost_usd=cost_usd,
        latency_s=time.monotonic() - started,
        tool_calls=tuple(tool_calls),
        thinking=tuple(thinking),
    )


def overflow_reply(label: str, started: float) -> Reply:
    """What a prompt gets that the provider refused as too long for the model."""
    return build_reply("", "overflow", label=label, usage=Usage(), cost_usd=None, started=started)


def _stop(stop: Stop, calls: Sequence[ToolCall]) -> Stop:
    """`tool` exactly where the model waits: some servers say `stop`, or nothing, beside calls."""
    if calls and stop in ("end", "other"):
        return "tool"
    # Called nothing, and so waits for nothing.
    return "other" if stop == "tool" and not calls else stop


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
