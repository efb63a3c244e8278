"""What is Claude's alone: its requests, streamed replies and counts, through the SDK's own transport."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from harness.errors import ProviderError
from harness.models import Model
from harness.models.anthropic_model import Incoming, sent_messages, system_text
from harness.models.messages import Answer
from harness.records import Message, Reply, Request, Usage
from tests.models.answers import anthropic_events, assistant, called, result, streamed, text_block, user
from tests.models.conftest import Script

Ask = Callable[..., Request]
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def stream(
    stop: str | None = "end_turn",
    *,
    first: int = 99,
    then: tuple[dict[str, Any], ...] = (),
    start: dict[str, Any] | None = None,
    end: dict[str, Any] | None = None,
) -> httpx2.Response:
    """The first events of a streamed message, then others; `start` and `end` change the token counts."""
    events = anthropic_events(THOUGHT, text_block("a project"), stop=stop)
    events[0]["message"]["usage"] = start or {"input_tokens": 600, "output_tokens": 1}
    events[-2]["usage"] = {"output_tokens": 500} | (end or {})
    return streamed([*events[:first], *then])


def test_a_reply_and_its_request_are_complete(claude: Model, script: Script, ask: Ask) -> None:
    """The system text goes apart, no seed is sent, and the prompt's cached part is counted in.

    Thinking, shown or hidden, is counted as reasoning.
    """
    counts = {"input_tokens": 600, "cache_read_input_tokens": 400, "output_tokens": 1}
    details = {"output_tokens_details": {"thinking_tokens": 300}}
    script.answers = [stream(start=counts | {"cache_creation_input_tokens": 0}, end=details)]
    reply = claude.complete(ask(max_output_tokens=32_000, seed=3))
    assert script.bodies == [
        {
            "model": "claude-haiku-4-5",
            "system": "you write kernels",
            "messages": [{"role": "user", "content": "write a kernel"}],
            "max_tokens": 32_000,
            "stream": True,
        }
    ]
    assert (reply.text, reply.stop, reply.model_label) == ("a project", "end", "claude-haiku-4-5")
    assert reply.usage == Usage(
        input_tokens=1000, cached_input_tokens=400, output_tokens=500, reasoning_tokens=300
    )
    assert reply.cost_usd == pytest.approx((600 * 1.0 + 400 * 0.1 + 500 * 5.0) / 1e6)
    assert Reply.model_validate_json(reply.model_dump_json()) == reply


@pytest.mark.parametrize(
    ("reason", "stop"), [("model_context_window_exceeded", "length"), ("pause_turn", "other")]
)
def test_every_ending_is_mapped(claude: Model, script: Script, ask: Ask, reason: str, stop: str) -> None:
    """Reasons of this API alone; an unknown one is `other`."""
    script.answers = [stream(reason)]
    assert claude.complete(ask()).stop == stop


def test_unknown_counts_stay_unknown_and_cache_writes_are_input(
    claude: Model, script: Script, ask: Ask
) -> None:
    """A count that is missing makes the cost unknown; written tokens cost a quarter more."""
    counts = {"input_tokens": 600, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 50}
    script.answers = [stream(), stream(start={**counts, "output_tokens": 1})]
    reply = claude.complete(ask())
    assert (reply.usage, reply.cost_usd) == (Usage(input_tokens=600, output_tokens=500), None)
    reply = claude.complete(ask())
    assert reply.usage.input_tokens == 650
    assert reply.cost_usd == pytest.approx((600 * 1.0 + 50 * 1.25 + 500 * 5.0) / 1e6)


def test_a_temperature_needs_the_older_api_version(claude: Model, script: Script, ask: Ask) -> None:
    """The present API version refuses any temperature, so one is sent with the version that takes it."""
    script.answers = [stream(), stream()]
    claude.complete(ask(temperature=0.2))
    claude.complete(ask())
    assert [body.get("temperature") for body in script.bodies] == [0.2, None]
    versions = [request.headers["anthropic-version"] for request in script.requests]
    assert versions[0] == "2023-06-01" != versions[1]


class Broken(httpx2.SyncByteStream):
    """A connection that breaks after the headers."""

    def __iter__(self) -> Any:
        yield stream(first=2).content
        raise httpx2.RemoteProtocolError("peer closed connection")


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (stream(first=6), "stream ended before the message did"),
        (stream(first=6, then=(OVERLOADED,)), "Overloaded"),
        (
            httpx2.Response(200, stream=Broken(), headers={"content-type": "text/event-stream"}),
            "peer closed connection",
        ),
    ],
)
def test_half_a_stream_is_no_reply(
    claude: Model, script: Script, ask: Ask, response: httpx2.Response, message: str
) -> None:
    """A stream that ends, fails or breaks before the message is whole is a failure, not a short reply."""
    script.answers = [response]
    with pytest.raises(ProviderError, match=message):
        claude.complete(ask())


def test_results_of_one_message_go_back_in_one_and_before_text() -> None:
    """Two parallel calls, their results and the user's next words: one user message, results first."""
    one, two = called("a.md", "b.md")
    told = [Message(role="system", content="one"), user("go"), assistant("I read.", one, two)]
    told += [result(one, "A"), result(two, ""), user("hurry"), Message(role="system", content="two")]
    uses = [
        {"type": "tool_use", "id": f"call_{i}", "name": "read_file", "input": {"path": path}}
        for i, path in enumerate(("a.md", "b.md"))
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "call_0", "content": "A"},
        {"type": "tool_result", "tool_use_id": "call_1"},
        text_block("hurry"),
    ]
    assert system_text(told) == "one\n\ntwo"
    assert sent_messages(told) == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [text_block("I read."), *uses]},
        {"role": "user", "content": results},
    ]


def test_unknown_events_are_ignored() -> None:
    """New kinds of events, blocks and deltas, and ones without their fields, change nothing."""
    message = Incoming()
    for kind, part in (
        ("news", {}),
        ("content_block_start", {"index": 0, "content_block": SimpleNamespace(type="news")}),
        ("content_block_delta", {"index": 7, "delta": SimpleNamespace(type="input_json_delta")}),
        ("content_block_delta", {}),
        ("message_start", {}),
    ):
        message.add(SimpleNamespace(type=kind, **part))
    assert message.answer("m") == Answer("", "other", "m", calls=[], thinking=[])
