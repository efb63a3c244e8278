"""Claude, through the SDK's own transport, and the Messages API's format both ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from harness.errors import ProviderError
from harness.models import PermanentProviderError, make_model
from harness.models.anthropic_model import Incoming, sent_messages, sent_tools, system_text
from harness.records import Message, ModelSpec, Reply, Request, Usage
from tests.models.answers import READ, anthropic_events, assistant, called, result, user

KEY = "sk-ant-test-0123456789"
Ask = Callable[..., Request]


def stream(
    text: str = "a project",
    stop: str | None = "end_turn",
    *,
    start_usage: dict[str, Any] | None = None,
    end_usage: dict[str, Any] | None = None,
    events: int = 99,
    error: dict[str, Any] | None = None,
) -> httpx2.Response:
    """A streamed message: the first `events` events, then perhaps an error event."""
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-4-5-20251001",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": start_usage or {"input_tokens": 600, "output_tokens": 1},
    }
    half = len(text) // 2
    parts = [
        {"type": "message_start", "message": message},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": text[:half]}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": text[half:]}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": end_usage or {"output_tokens": 500},
        },
        {"type": "message_stop"},
    ][:events]
    if error is not None:
        parts.append({"type": "error", "error": error})
    lines = "".join(f"event: {part['type']}\ndata: {json.dumps(part)}\n\n" for part in parts)
    return httpx2.Response(200, text=lines, headers={"content-type": "text/event-stream"})


def failure(status: int, kind: str, message: str) -> httpx2.Response:
    """An error as the API sends it; the hint makes the SDK retry at once."""
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return httpx2.Response(status, json=body, headers={"retry-after-ms": "1"})


@pytest.fixture
def claude(script: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A scripted anthropic/claude-haiku-4-5."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    return make_model(ModelSpec(name="anthropic/claude-haiku-4-5"), max_retries=2, http_client=script.client)


def bodies(script: Any) -> list[dict[str, Any]]:
    """The JSON bodies that were sent."""
    return [json.loads(request.content) for request in script.requests]


def test_a_reply_and_its_request_are_complete(claude: Any, script: Any, ask: Ask) -> None:
    """The system text goes apart, the reply is streamed, and the prompt's cached part is counted in."""
    script.answers = [
        stream(
            start_usage={
                "input_tokens": 600,
                "cache_read_input_tokens": 400,
                "cache_creation_input_tokens": 0,
                "output_tokens": 1,
            },
            end_usage={"output_tokens": 500, "output_tokens_details": {"thinking_tokens": 300}},
        )
    ]
    reply = claude.complete(ask(max_output_tokens=32_000))
    assert bodies(script) == [
        {
            "model": "claude-haiku-4-5",
            "system": "you write kernels",
            "messages": [{"role": "user", "content": "write a kernel"}],
            "max_tokens": 32_000,
            "stream": True,
        }
    ]
    assert (reply.text, reply.stop, reply.model_label) == ("a project", "end", "claude-haiku-4-5-20251001")
    assert reply.usage == Usage(
        input_tokens=1000, cached_input_tokens=400, output_tokens=500, reasoning_tokens=300
    )
    assert reply.cost_usd == pytest.approx((600 * 1.0 + 400 * 0.1 + 500 * 5.0) / 1e6)
    assert reply.latency_s is not None and not reply.recorded
    assert Reply.model_validate_json(reply.model_dump_json()) == reply


def test_a_prompt_without_system_text_sends_none(claude: Any, script: Any, ask: Ask) -> None:
    """No empty system text is sent, which the API refuses."""
    script.answers = [stream()]
    claude.complete(ask(system=None))
    assert "system" not in bodies(script)[0]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "other"),
    ],
)
def test_every_ending_is_mapped(claude: Any, script: Any, ask: Ask, reason: str, stop: str) -> None:
    """Truncation and refusal are told from a finished reply."""
    script.answers = [stream(stop=reason)]
    assert claude.complete(ask()).stop == stop


def test_unknown_usage_stays_unknown(claude: Any, script: Any, ask: Ask) -> None:
    """Counts that the API leaves out are None, and so is a cost that depends on them."""
    script.answers = [stream()]
    reply = claude.complete(ask())
    assert reply.usage == Usage(input_tokens=600, output_tokens=500)
    assert reply.cost_usd is None


def test_tokens_written_to_the_cache_are_input_of_their_own_price(claude: Any, script: Any, ask: Ask) -> None:
    """Cache writes belong to the prompt and cost a quarter more, for the default lifetime."""
    counts = {"input_tokens": 600, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 50}
    script.answers = [stream(start_usage={**counts, "output_tokens": 1})]
    reply = claude.complete(ask())
    assert reply.usage.input_tokens == 650
    assert reply.cost_usd == pytest.approx((600 * 1.0 + 50 * 1.25 + 500 * 5.0) / 1e6)


def test_a_temperature_needs_the_older_api_version(claude: Any, script: Any, ask: Ask) -> None:
    """The present API version refuses any temperature, so one is sent with the version that takes it."""
    script.answers = [stream(), stream()]
    claude.complete(ask(temperature=0.2))
    claude.complete(ask())
    with_it, without = script.requests
    assert bodies(script)[0]["temperature"] == 0.2 and "temperature" not in bodies(script)[1]
    assert with_it.headers["anthropic-version"] == "2023-06-01"
    assert without.headers["anthropic-version"] != "2023-06-01"


def test_no_seed_is_sent(claude: Any, script: Any, ask: Ask) -> None:
    """The API has none."""
    script.answers = [stream()]
    claude.complete(ask(seed=3))
    assert "seed" not in bodies(script)[0]


def test_a_passing_failure_is_retried(claude: Any, script: Any, ask: Ask) -> None:
    """A rate limit, then an overload, then an answer: the caller sees the answer."""
    script.answers = [
        failure(429, "rate_limit_error", "slow down"),
        failure(529, "overloaded_error", "overloaded"),
        stream(),
    ]
    assert claude.complete(ask()).text == "a project"
    assert len(script.requests) == 3


@pytest.mark.parametrize(
    ("status", "message", "permanent", "advice"),
    [
        (401, f"invalid key {KEY}", True, "Check ANTHROPIC_API_KEY"),
        (404, "model: claude-nope", True, "Check the model name"),
        (400, "Your credit balance is too low", True, "Add credit"),
        (400, "messages: at least one", False, "refused the request (400): messages: at least one"),
        (429, "slow down", False, "after 2 retries. Wait, or lower --max-connections"),
        (529, "overloaded", False, "after 2 retries. Try again later"),
    ],
)
def test_a_lasting_failure_says_what_to_do(
    claude: Any, script: Any, ask: Ask, status: int, message: str, permanent: bool, advice: str
) -> None:
    """Each status becomes advice; those that asking again cannot mend are permanent; no key is shown."""
    script.answers = [failure(status, "some_error", message) for _ in range(3)]
    with pytest.raises(ProviderError) as caught:
        claude.complete(ask())
    assert advice in str(caught.value) and f"({status})" in str(caught.value)
    assert isinstance(caught.value, PermanentProviderError) is permanent
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("events", [0, 1, 6, 8])
def test_half_a_stream_is_no_reply(claude: Any, script: Any, ask: Ask, events: int) -> None:
    """A stream that ends before the message does is a failure, not a short reply."""
    script.answers = [stream(events=events)]
    with pytest.raises(ProviderError, match="stream ended before the message did"):
        claude.complete(ask())


def test_an_error_inside_a_stream_is_a_provider_failure(claude: Any, script: Any, ask: Ask) -> None:
    """An overload in the middle of a reply is reported with the provider's words."""
    script.answers = [stream(events=6, error={"type": "overloaded_error", "message": "Overloaded"})]
    with pytest.raises(ProviderError, match="Overloaded"):
        claude.complete(ask())


def test_a_connection_lost_inside_a_stream_is_a_provider_failure(claude: Any, script: Any, ask: Ask) -> None:
    """A connection that breaks after the headers is reported, whatever the SDK makes of it."""

    class Broken(httpx2.SyncByteStream):
        def __iter__(self) -> Any:
            yield stream(events=2).content
            raise httpx2.RemoteProtocolError("peer closed connection")

    script.answers = [httpx2.Response(200, stream=Broken(), headers={"content-type": "text/event-stream"})]
    with pytest.raises(ProviderError, match="peer closed connection"):
        claude.complete(ask())


def test_no_connection_names_the_address(script: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that is down is named; only the user's own address for `anthropic/` gets the key."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    spec = ModelSpec(name="anthropic/claude-haiku-4-5", base_url="http://gateway.example/")
    model = make_model(spec, max_retries=0, http_client=script.client)
    script.answers = [httpx2.ConnectError("[Errno 111] Connection refused")]
    with pytest.raises(
        ProviderError, match=r"http://gateway.example cannot be reached \(\[Errno 111\] Connection refused"
    ):
        model.complete(ask())


def _event(value: Any) -> Any:
    """JSON as the SDK hands it on: objects with attributes, but a call's input is a dict."""
    if isinstance(value, dict):
        parts = {name: part if name == "input" else _event(part) for name, part in value.items()}
        return SimpleNamespace(**parts)
    return value


def _received(*events: Any) -> Incoming:
    message = Incoming()
    for event in events:
        message.add(_event(event))
    return message


def test_results_of_one_message_go_back_in_one_and_before_text() -> None:
    """Two parallel calls, their results and the user's next words: one user message, results first."""
    one, two = called("a.md", "b.md")
    told = [user("go"), assistant("I read.", one, two), result(one, "A"), result(two, ""), user("hurry")]
    assert sent_messages(told) == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I read."},
                {"type": "tool_use", "id": "call_0", "name": "read_file", "input": {"path": "a.md"}},
                {"type": "tool_use", "id": "call_1", "name": "read_file", "input": {"path": "b.md"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_0", "content": "A"},
                {"type": "tool_result", "tool_use_id": "call_1"},
                {"type": "text", "text": "hurry"},
            ],
        },
    ]


def test_an_answer_that_only_calls_has_no_text_block() -> None:
    """The API refuses empty text."""
    [call] = called("a.md")
    [_, sent, _] = sent_messages([user("go"), assistant("", call), result(call, "A")])
    assert [block["type"] for block in sent["content"]] == ["tool_use"]


def test_the_system_text_goes_apart() -> None:
    """System messages are no turns, wherever they stand."""
    told = [Message(role="system", content="one"), user("go"), Message(role="system", content="two")]
    assert system_text(told) == "one\n\ntwo"
    assert sent_messages(told) == [{"role": "user", "content": "go"}]


def test_tools_have_the_apis_names() -> None:
    """The schema of the arguments is `input_schema`."""
    [sent] = sent_tools([READ])
    assert sent == {"name": READ.name, "description": READ.description, "input_schema": READ.parameters}


def test_a_call_is_kept_as_it_was_written() -> None:
    """Pieces are joined to the text that the model wrote, valid or not; a call without any has {}."""
    calls = [("t1", "read_file", ['{"pa', 'th": "a.m']), ("t2", "list_files", [])]
    message = _received(*anthropic_events("I read.", "tool_use", calls, thinking="hm"))
    assert message.text == "I read." and message.stop_reason == "tool_use"
    assert message.calls == [("t1", "read_file", '{"path": "a.m'), ("t2", "list_files", "{}")]
    assert message.counts["output_tokens"] == 500 and message.counts["input_tokens"] == 600


def test_unknown_events_are_passed_over() -> None:
    """New kinds of events, blocks and deltas, and ones without their fields, change nothing."""
    message = _received(
        {"type": "news"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "news"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}},
        {
            "type": "content_block_delta",
            "index": 7,
            "delta": {"type": "input_json_delta", "partial_json": "{"},
        },
        {"type": "content_block_delta"},
        {"type": "message_start"},
        3,
    )
    assert (message.text, message.calls, message.stop_reason, message.counts) == ("", [], None, {})
