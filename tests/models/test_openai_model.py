"""OpenAI and compatible servers alone: requests, replies and failures, through the SDK's own transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from harness.errors import PermanentProviderError, ProviderError
from harness.models import Model
from harness.records import Reply, Request, Usage
from tests.models.answers import READ, answered, completion, openai_error
from tests.models.conftest import KEYS, Script

KEY = KEYS["OPENAI_API_KEY"]
Ask = Callable[..., Request]


def refusal(message: str, status: int = 400, **fields: Any) -> httpx2.Response:
    """An error as OpenAI sends it; the hint makes the SDK retry at once."""
    return answered(openai_error(message, **fields), status, **{"retry-after-ms": "1"})


def test_a_reply_and_its_request_are_complete(openai: Model, script: Script, ask: Ask) -> None:
    """Messages, limit, temperature and seed go out; text, label, usage, cost and latency come back.

    Reasoning, which this API does not show, is counted.
    """
    whole = completion()
    whole["usage"] |= {
        "prompt_tokens_details": {"cached_tokens": 200},
        "completion_tokens_details": {"reasoning_tokens": 300},
    }
    script.answers = [answered(whole), answered(whole)]
    reply = openai.complete(ask(max_output_tokens=900, temperature=0.5, seed=7))
    openai.complete(ask())
    sent, plain = script.bodies
    assert sent == {
        "model": "gpt-5-mini",
        "messages": [
            {"role": "system", "content": "you write kernels"},
            {"role": "user", "content": "write a kernel"},
        ],
        "max_completion_tokens": 900,
        "temperature": 0.5,
        "seed": 7,
    }
    assert set(plain) == {"model", "messages", "max_completion_tokens"}
    assert str(script.requests[0].url) == "https://api.openai.com/v1/chat/completions"
    assert (reply.text, reply.stop, reply.model_label) == ("a project", "end", "gpt-5-mini")
    assert reply.usage == Usage(
        input_tokens=600, cached_input_tokens=200, output_tokens=500, reasoning_tokens=300
    )
    assert reply.cost_usd == pytest.approx((400 * 0.25 + 200 * 0.025 + 500 * 2.0) / 1e6)
    assert reply.latency_s is not None and not reply.recorded and reply.created.endswith("+00:00")
    assert Reply.model_validate_json(reply.model_dump_json()) == reply


@pytest.mark.parametrize(
    ("body", "stop", "text"),
    [
        (completion("stop", content=None, refusal="I will not"), "refusal", "I will not"),
        (completion(None), "other", "a project"),
        (completion("stop", content=[{"type": "thinking"}, {"type": "text", "text": "t"}]), "end", "t"),
        # A call that the server did not parse is left to the reader.
        (completion("stop", content='<tool_call>{"name": "f"}'), "end", '<tool_call>{"name": "f"}'),
    ],
)
def test_every_ending_is_mapped(
    openai: Model, script: Script, ask: Ask, body: dict[str, Any], stop: str, text: str
) -> None:
    """Refusal and odd shapes of content become a stop and a text that can be stored."""
    script.answers = [answered(body)]
    reply = openai.complete(ask(tools=(READ,)))
    assert (reply.stop, reply.text, reply.tool_calls) == (stop, text, ())


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, Usage()),
        ({"prompt_tokens": "9", "completion_tokens": None}, Usage()),
    ],
)
def test_unknown_usage_stays_unknown(
    openai: Model, script: Script, ask: Ask, usage: object, expected: Usage
) -> None:
    """Counts that a server does not give are None, never 0, and so is the cost that depends on them."""
    script.answers = [answered(completion() | {"usage": usage, "model": None})]
    reply = openai.complete(ask())
    assert (reply.usage, reply.cost_usd, reply.model_label) == (expected, None, "gpt-5-mini")


def test_an_unsupported_parameter_is_sent_no_more(openai: Model, script: Script, ask: Ask) -> None:
    """OpenAI's code says which: the request is repeated without it, and later ones are sent without it."""
    script.answers = [
        refusal("not here", param="temperature", code="unsupported_value"),
        refusal("not here", param="seed", code="unsupported_parameter"),
        answered(completion()),
        answered(completion()),
    ]
    for _ in range(2):
        openai.complete(ask(temperature=0.5, seed=7))
    assert ["temperature" in body for body in script.bodies] == [True, False, False, False]
    assert ["seed" in body for body in script.bodies] == [True, True, False, False]


@pytest.mark.parametrize("param", ["max_completion_tokens", None])
def test_other_parameters_are_not_dropped(openai: Model, script: Script, ask: Ask, param: str | None) -> None:
    """The limit on output tokens is never dropped, and no request is repeated unchanged."""
    script.answers = [refusal("no", param=param, code="unsupported_parameter")]
    with pytest.raises(ProviderError, match="refused the request"):
        openai.complete(ask(temperature=0.5))


def test_a_refusal_of_a_request_with_tools_names_the_alternative(
    local: Model, script: Script, ask: Ask
) -> None:
    """Servers refuse tools in many words; a request without any is not blamed on them."""
    script.answers = [refusal("no tools"), refusal("no tools")]
    with pytest.raises(ProviderError, match="--delivery body"):
        local.complete(ask(tools=(READ,)))
    with pytest.raises(ProviderError, match=r"above$"):
        local.complete(ask())


@pytest.mark.parametrize("key", [None, "own-key"])
def test_no_account_leaks_to_a_foreign_server(
    script: Script, ask: Ask, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """Nothing of an OpenAI or Anthropic account goes to another base URL, but LIFTBENCH_API_KEY does.

    Older servers know only max_tokens; the price is unknown.
    """
    for variable in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(variable, f"secret-{variable}")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-anthropic")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://secret.example/v1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer secret-a\nX-Gateway: secret-b")
    if key is not None:
        monkeypatch.setenv("LIFTBENCH_API_KEY", key)
    script.answers = [answered(completion())]
    assert script.model("local/llama", "http://localhost:8080/v1/").complete(ask()).cost_usd is None
    [sent] = script.requests
    assert script.bodies[0]["max_tokens"] == 16_000
    assert str(sent.url) == "http://localhost:8080/v1/chat/completions"
    assert "secret" not in f"{sent.url}{sent.headers.multi_items()}{sent.content!r}"
    assert sent.headers["authorization"] == f"Bearer {key or 'none'}"


def test_a_redirect_does_not_carry_the_key_away(openai: Model, script: Script, ask: Ask) -> None:
    """A server that redirects to another host does not make us send the key there."""
    script.answers = [httpx2.Response(307, headers={"location": "https://elsewhere.example/v1"})]
    script.answers.append(answered(completion()))
    openai.complete(ask())
    first, second = script.requests
    assert KEY in first.headers["authorization"]
    assert second.url.host == "elsewhere.example" and "authorization" not in second.headers


def test_a_spent_quota_is_no_rate_limit(openai: Model, script: Script, ask: Ask) -> None:
    """OpenAI gives both the same status."""
    script.answers = [refusal("quota", 429, code="insufficient_quota") for _ in range(3)]
    with pytest.raises(PermanentProviderError, match=r"no credit left \(429\): quota. Add credit"):
        openai.complete(ask())


@pytest.mark.parametrize(
    "body",
    [
        answered({"error": {"type": "exceed_context_size_error", "message": "Too much"}}),
        refusal("No", code="context_length_exceeded"),
    ],
    ids=["llama.cpp's type in a 200", "OpenAI's code"],
)
def test_a_prompt_that_is_too_long_is_recognized_by_its_code(
    local: Model, script: Script, ask: Ask, body: httpx2.Response
) -> None:
    """Whatever the sentence says."""
    script.answers = [body]
    assert local.complete(ask()).stop == "overflow"


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (httpx2.Response(200, text="<html>hello</html>", headers={"content-type": "text/html"}), "hello"),
        (httpx2.Response(200, text="{x", headers={"content-type": "application/json"}), "{x"),
        (answered({"error": {"message": "no capacity"}}), "no capacity"),
        (answered(completion() | {"choices": [None]}), '"choices": .null.'),
    ],
)
def test_an_answer_that_is_no_reply_is_a_provider_failure(
    local: Model, script: Script, ask: Ask, reply: httpx2.Response, says: str
) -> None:
    """A web page, half a JSON or an empty list of choices is reported, with a hint at the address."""
    script.answers = [reply]
    with pytest.raises(ProviderError, match=rf"no usable reply: .*{says}.*end in /v1"):
        local.complete(ask())


def test_a_local_server_may_call_in_its_own_way(local: Model, script: Script, ask: Ask) -> None:
    """Arguments as an object, no ids, `stop` for a reason: calls are taken, each with an id of its own."""
    call = {"function": {"name": "read_file", "arguments": {"path": "a.md"}}}
    calls = [call, call, {"id": "c00000000", **call}]
    script.answers = [answered(completion("stop", content="", tool_calls=calls))]
    reply = local.complete(ask(tools=(READ,), step=3))
    assert reply.stop == "tool"
    assert [c.arguments for c in reply.tool_calls] == ['{"path": "a.md"}'] * 3
    ids = [c.id for c in reply.tool_calls]
    assert len(set(ids)) == 3 and ids[2] == "c00000000"
    # Mistral's servers take no other.
    assert all(len(i) == 9 and i.isalnum() for i in ids)
