"""What providers do, asked of both SDKs alike through their own transports."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
import pytest

from harness.errors import PermanentProviderError, ProviderError
from harness.models import Model
from harness.records import Reply, Request, ToolCall, Usage
from tests.models import answers
from tests.models.answers import READ, assistant, called, completion, result, text_block, user
from tests.models.conftest import KEYS, Script

Ask = Callable[..., Request]


class Provider:
    """One provider: its model, and how it says the same thing as the other."""

    def __init__(self, name: str, model: Model, script: Script) -> None:
        self.claude = name == "claude"
        self.model = model
        self.script = script

    def says(self, text: str | None = "a project", stop: str = "end", calls: Sequence[ToolCall] = ()) -> None:
        """Queue a reply; stop is `end`, `length`, `refusal` or `tool`."""
        if self.claude:
            reason = {"end": "end_turn", "length": "max_tokens", "tool": "tool_use"}.get(stop, stop)
            blocks: list[dict[str, Any]] = [text_block(text)] if text else []
            blocks += [{"type": "tool_use", "id": c.id, "name": c.name, "input": c.arguments} for c in calls]
            self.script.answers.append(answers.says(*blocks, stop=reason))
            return
        reason = {"end": "stop", "refusal": "content_filter", "tool": "tool_calls"}.get(stop, stop)
        sent = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in calls
        ]
        more = {"tool_calls": sent} if sent else {}
        self.script.answers.append(answers.answered(completion(reason, content=text, **more)))

    def fails(self, status: int, message: str, times: int = 1) -> None:
        """Queue refusals that ask to be tried again at once."""
        body = answers.anthropic_error(message) if self.claude else answers.openai_error(message)
        for _ in range(times):
            self.script.answers.append(answers.answered(body, status, **{"retry-after": "0.001"}))


@pytest.fixture(params=["claude", "openai"])
def provider(request: pytest.FixtureRequest, script: Script) -> Provider:
    """Each provider in turn, with two retries."""
    return Provider(request.param, request.getfixturevalue(request.param), script)


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("half a proj", "length", ("half a proj", "length")),
        ("", "end", ("", "end")),
        (None, "refusal", ("", "refusal")),
        ("naïve ✓ 🚀", "end", ("naïve ✓ 🚀", "end")),
        ("cut \ud83d", "length", ("cut \ufffd", "length")),
        ("waits for nothing", "tool", ("waits for nothing", "other")),
    ],
    ids=["truncated", "empty", "filtered", "unicode", "surrogate", "no call"],
)
def test_what_is_said_arrives(
    provider: Provider, ask: Ask, text: str | None, stop: str, expected: tuple[str, str]
) -> None:
    """Whatever the text is, it is a reply that can be stored."""
    provider.says(text, stop)
    reply = provider.model.complete(ask())
    assert (reply.text, reply.stop) == expected and reply.tool_calls == ()
    assert Reply.model_validate_json(reply.model_dump_json()) == reply


@pytest.mark.parametrize("stop", ["tool", "end", "length"])
def test_calls_are_offered_made_and_answered(provider: Provider, ask: Ask, stop: str) -> None:
    """Parallel calls come back as written, waited for unless cut off; their results go out beside them."""
    provider.says("I read.", stop, called("a.md", "b.md"))
    provider.says()
    first = ask(tools=(READ,))
    reply = provider.model.complete(first)
    assert (reply.text, reply.tool_calls) == ("I read.", called("a.md", "b.md"))
    assert reply.stop == ("length" if stop == "length" else "tool")
    results = [result(call, text) for call, text in zip(reply.tool_calls, "AB", strict=True)]
    told = (*first.messages, assistant(reply.text, *reply.tool_calls), *results)
    after = provider.model.complete(ask(tools=(READ,), messages=told, step=1))
    assert (after.text, after.stop) == ("a project", "end")
    offered, sent = provider.script.bodies
    assert offered["tools"] == sent["tools"] and READ.name in str(offered["tools"])
    # Anthropic: user, calls, results in one. OpenAI: system and user, calls, a result each.
    roles = [m["role"] for m in sent["messages"]]
    assert roles in (["user", "assistant", "user"], ["system", "user", "assistant", "tool", "tool"])


@pytest.mark.parametrize("arguments", ['{"path": "a.m', '{"path": "cut \ud83d"}', ""])
def test_broken_arguments_are_the_models(provider: Provider, ask: Ask, arguments: str) -> None:
    """A call that cannot be read is handed on as written, and can be sent back with an answer."""
    provider.says(None, "tool", [ToolCall(id="t1", name="read_file", arguments=arguments)])
    provider.says()
    reply = provider.model.complete(ask(tools=(READ,)))
    written = arguments.replace("\ud83d", "\ufffd") or "{}"
    assert reply.stop == "tool"
    assert reply.tool_calls == (ToolCall(id="t1", name="read_file", arguments=written),)
    told = (user("go"), assistant("", *reply.tool_calls), result(reply.tool_calls[0], "no JSON"))
    assert provider.model.complete(ask(tools=(READ,), messages=told, step=1)).text == "a project"
    # Servers parse the arguments of earlier calls, and fail on what is no JSON object.
    [sent] = [m for m in provider.script.bodies[1]["messages"] if m["role"] == "assistant"]
    [given] = (
        [block["input"] for block in sent["content"]]
        if provider.claude
        else [json.loads(call["function"]["arguments"]) for call in sent["tool_calls"]]
    )
    assert given.get("invalid_json", given.get("path", "")) in (written, "cut \ufffd", "")


def test_a_student_that_said_nothing_can_be_asked_again(provider: Provider, ask: Ask) -> None:
    """An empty answer in the middle, which APIs refuse, is left out."""
    provider.says()
    provider.model.complete(ask(messages=(user("write"), assistant(""), user("again"))))
    assert provider.script.bodies[0]["messages"] == [{"role": "user", "content": "write\n\nagain"}]


@pytest.mark.parametrize(
    ("status", "message", "permanent", "advice"),
    [
        (401, "bad {key} sk-proj-ab**yz.", True, "Check {variable}"),
        (402, "no money", True, "Add credit"),
        (400, "Your credit balance is too low", True, "Add credit"),
        (403, "no", True, "Check that the key in {variable} may use this model"),
        (404, "no", True, "Check the model name"),
        (429, "not now", False, "after 2 retries. Wait, or lower --max-connections"),
        (503, "not now", False, "after 2 retries. Try again later"),
        (413, "no", False, "refused the request"),
    ],
)
def test_a_lasting_failure_says_what_to_do(
    provider: Provider, ask: Ask, status: int, message: str, permanent: bool, advice: str
) -> None:
    """Each status becomes advice; those that asking again does not repair are permanent; no key is shown."""
    variable = "ANTHROPIC_API_KEY" if provider.claude else "OPENAI_API_KEY"
    provider.fails(status, message.format(key=KEYS[variable]), times=9)
    with pytest.raises(ProviderError) as caught:
        provider.model.complete(ask())
    told = str(caught.value)
    assert told.startswith(provider.model.name) and f" ({status}): " in told
    assert advice.format(variable=variable) in told
    assert isinstance(caught.value, PermanentProviderError) is permanent
    assert "sk-" not in told + repr(provider.model) + repr(list(vars(provider.model).values()))
    assert caught.value.__suppress_context__
    assert len(provider.script.requests) == (3 if "after 2 retries" in told else 1)


TOO_LONG = "prompt is too long: the maximum context length is 128000 tokens"


@pytest.mark.parametrize(
    ("status", "message"), [(400, "prompt is too long: 213423 tokens > 200000 maximum"), (413, TOO_LONG)]
)
def test_a_prompt_that_is_too_long_is_a_reply(
    provider: Provider, ask: Ask, status: int, message: str
) -> None:
    """The student's prompt does not fit: no text, unknown tokens, no retry, and no failure of ours."""
    provider.fails(status, message)
    reply = provider.model.complete(ask())
    assert (reply.text, reply.stop, reply.usage, reply.cost_usd) == ("", "overflow", Usage(), None)
    assert len(provider.script.requests) == 1


@pytest.mark.parametrize(
    ("status", "message"),
    [(429, TOO_LONG), (400, "max_tokens is too large: 16000. This model supports at most 4096.")],
)
def test_other_failures_are_not_a_long_prompt(
    provider: Provider, ask: Ask, status: int, message: str
) -> None:
    """A limit on tokens per minute or another complaint stays what it is."""
    provider.fails(status, message, times=3)
    with pytest.raises(ProviderError, match=rf"\({status}\)"):
        provider.model.complete(ask())


def test_a_limit_that_fills_the_context_is_the_users_to_repair(provider: Provider, ask: Ask) -> None:
    """Where no prompt at all would fit, no student is blamed: the limit on the reply is too high."""
    provider.fails(400, TOO_LONG)
    with pytest.raises(PermanentProviderError, match=r"200,000 tokens leave no room.*Lower --max-tokens"):
        provider.model.complete(ask(max_output_tokens=200_000))


@pytest.mark.parametrize("by_variable", [True, False])
@pytest.mark.parametrize(
    ("name", "vendor"), [("anthropic/claude-haiku-4-5", "ANTHROPIC"), ("openai/gpt-5-mini", "OPENAI")]
)
def test_a_gateway_gets_the_key_and_sets_its_own_prices(
    script: Script, ask: Ask, monkeypatch: pytest.MonkeyPatch, name: str, vendor: str, by_variable: bool
) -> None:
    """An address that the user gives beside the provider is a gateway; one that is down is named."""
    url, key = "https://gateway.example/v1", KEYS[f"{vendor}_API_KEY"]
    monkeypatch.setenv(f"{vendor}_API_KEY", key)
    if by_variable:
        monkeypatch.setenv(f"{vendor}_BASE_URL", url)
    model: Any = script.model(name, None if by_variable else url, retries=0)
    assert model.price is None
    script.answers = [httpx2.ConnectError("[Errno 111] Connection refused")]
    with pytest.raises(ProviderError, match=rf"{url} cannot be reached \(\[Errno 111\]"):
        model.complete(ask())
    assert (
        key in str(script.requests[0].headers.multi_items())
        and script.requests[0].url.host == "gateway.example"
    )
