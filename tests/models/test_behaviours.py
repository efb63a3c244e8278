"""What providers do, asked of both SDKs alike through their own transports."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from harness.errors import ProviderError
from harness.models import Model, PermanentProviderError, make_model
from harness.records import ModelSpec, Reply, Request, ToolCall, Usage
from tests.models.answers import (
    READ,
    anthropic_error,
    anthropic_events,
    assistant,
    called,
    completion,
    event_stream,
    openai_error,
    result,
    user,
)

Ask = Callable[..., Request]
Called = Sequence[tuple[str, str, str]]


@dataclass
class Provider:
    """One provider: its model, and how it says the same thing as the other."""

    name: str
    model: Model
    script: Any

    def says(self, text: str | None = "a project", stop: str = "end", calls: Called = ()) -> None:
        """Queue a reply; stop is `end`, `length`, `refusal` or `tool`."""
        if self.name == "anthropic":
            reason = {"end": "end_turn", "length": "max_tokens", "tool": "tool_use"}.get(stop, stop)
            pieces = [(i, name, [text[:4], text[4:]]) for i, name, text in calls]
            self._queue_events(anthropic_events(text or "", reason, pieces))
            return
        reason = {"end": "stop", "refusal": "content_filter", "tool": "tool_calls"}.get(stop, stop)
        sent = [
            {"id": i, "type": "function", "function": {"name": name, "arguments": text}}
            for i, name, text in calls
        ]
        self._queue_json(completion(reason, content=text, **({"tool_calls": sent} if sent else {})))

    def fails(self, status: int, message: str, times: int = 1, **headers: str) -> None:
        """Queue refusals."""
        body = anthropic_error("some_error", message) if self.name == "anthropic" else openai_error(message)
        for _ in range(times):
            self.script.answers.append(httpx2.Response(status, json=body, headers=headers))

    def _queue_events(self, events: Sequence[dict[str, Any]]) -> None:
        kind = {"content-type": "text/event-stream"}
        self.script.answers.append(httpx2.Response(200, text=event_stream(events), headers=kind))

    def _queue_json(self, body: object) -> None:
        # Not `json=`, which would refuse half a surrogate pair.
        kind = {"content-type": "application/json"}
        self.script.answers.append(httpx2.Response(200, text=json.dumps(body), headers=kind))

    def sent(self) -> list[dict[str, Any]]:
        """The bodies that went out."""
        return [json.loads(request.content) for request in self.script.requests]


@pytest.fixture(params=["anthropic", "openai"])
def provider(request: pytest.FixtureRequest, script: Any, monkeypatch: pytest.MonkeyPatch) -> Provider:
    """Each provider in turn, with two retries."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    names = {"anthropic": "anthropic/claude-haiku-4-5", "openai": "openai/gpt-5-mini"}
    spec = ModelSpec(name=names[request.param])
    return Provider(request.param, make_model(spec, max_retries=2, http_client=script.client), script)


@pytest.mark.parametrize("status", [429, 503])
def test_a_failure_for_ever_ends(provider: Provider, ask: Ask, status: int) -> None:
    """After the retries it is a failure of the provider that a later attempt may mend."""
    provider.fails(status, "not now", times=9, **{"retry-after": "0.001"})
    with pytest.raises(ProviderError, match=rf"\({status}\): not now, after 2 retries") as caught:
        provider.model.complete(ask())
    assert not isinstance(caught.value, PermanentProviderError)
    assert len(provider.script.requests) == 3


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("half a proj", "length", ("half a proj", "length")),
        ("", "end", ("", "end")),
        (None, "refusal", ("", "refusal")),
        ("naïve ✓ 🚀", "end", ("naïve ✓ 🚀", "end")),
        ("cut \ud83d", "length", ("cut \ufffd", "length")),
    ],
    ids=["truncated", "empty", "filtered", "unicode", "surrogate"],
)
def test_what_is_said_arrives(
    provider: Provider, ask: Ask, text: str | None, stop: str, expected: tuple[str, str]
) -> None:
    """Whatever the text is, it is a reply that can be stored."""
    provider.says(text, stop)
    reply = provider.model.complete(ask())
    assert (reply.text, reply.stop) == expected and reply.tool_calls == ()
    assert Reply.model_validate_json(reply.model_dump_json()) == reply


def test_calls_are_offered_made_and_answered(provider: Provider, ask: Ask) -> None:
    """Two parallel calls come back as they were written, and their results go out beside them."""
    provider.says("I read.", "tool", [(c.id, c.name, c.arguments) for c in called("a.md", "b.md")])
    provider.says()
    first = ask(tools=(READ,))
    reply = provider.model.complete(first)
    assert (reply.text, reply.stop, reply.tool_calls) == ("I read.", "tool", called("a.md", "b.md"))
    results = [result(call, text) for call, text in zip(reply.tool_calls, "AB", strict=True)]
    told = (*first.messages, assistant(reply.text, *reply.tool_calls), *results)
    after = provider.model.complete(ask(tools=(READ,), messages=told, step=1))
    assert (after.text, after.stop) == ("a project", "end")
    offered, answered = provider.sent()
    assert offered["tools"] == answered["tools"] and READ.name in str(offered["tools"])
    # Anthropic: user, calls, results in one. OpenAI: system and user, calls, a result each.
    roles = [m["role"] for m in answered["messages"]]
    assert roles in (["user", "assistant", "user"], ["system", "user", "assistant", "tool", "tool"])


@pytest.mark.parametrize("arguments", ['{"path": "a.m', "not JSON", '{"path": "cut \ud83d"}', ""])
def test_broken_arguments_are_the_models(provider: Provider, ask: Ask, arguments: str) -> None:
    """A call that cannot be read is handed on as written, and can be sent back with an answer."""
    provider.says(None, "tool", [("t1", "read_file", arguments)])
    provider.says()
    reply = provider.model.complete(ask(tools=(READ,)))
    written = arguments.replace("\ud83d", "\ufffd") or "{}"
    assert reply.stop == "tool"
    assert reply.tool_calls == (ToolCall(id="t1", name="read_file", arguments=written),)
    told = (user("go"), assistant("", *reply.tool_calls), result(reply.tool_calls[0], "no JSON"))
    assert provider.model.complete(ask(tools=(READ,), messages=told, step=1)).text == "a project"


@pytest.mark.parametrize("status", [400, 413])
def test_a_prompt_that_is_too_long_is_a_reply(provider: Provider, ask: Ask, status: int) -> None:
    """The student's prompt does not fit: no text, unknown tokens, no retry, and no failure of ours."""
    provider.fails(status, "prompt is too long: the maximum context length is 128000 tokens")
    reply = provider.model.complete(ask())
    assert (reply.text, reply.stop, reply.usage, reply.cost_usd) == ("", "overflow", Usage(), None)
    assert len(provider.script.requests) == 1


def test_a_student_that_said_nothing_can_be_asked_again(provider: Provider, ask: Ask) -> None:
    """An empty answer in the middle, which APIs refuse, is left out."""
    provider.says()
    provider.model.complete(ask(messages=(user("write"), assistant(""), user("again"))))
    assert provider.sent()[0]["messages"] == [{"role": "user", "content": "write\n\nagain"}] or (
        [b["text"] for b in provider.sent()[0]["messages"][0]["content"]] == ["write", "again"]
    )
