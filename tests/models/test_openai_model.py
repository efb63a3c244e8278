"""OpenAI's models and compatible servers, through the SDK's own transport and a real local server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.errors import ProviderError
from harness.models import Model, PermanentProviderError, make_model
from harness.records import ModelSpec, Reply, Request, Usage

pytest.importorskip("openai", reason="needs openai (pip install openai)")
httpx2 = pytest.importorskip("httpx2", reason="needs openai (pip install openai)")

KEY = "sk-test-0123456789"
JSON = {"content-type": "application/json"}
Ask = Callable[..., Request]


def completion(**changes: Any) -> dict[str, Any]:
    """A chat completion as OpenAI sends it."""
    body: dict[str, Any] = {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "gpt-5-mini-2025-08-07",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "a project", "refusal": None},
            }
        ],
        "usage": {
            "prompt_tokens": 1000,
            "completion_tokens": 500,
            "total_tokens": 1500,
            "prompt_tokens_details": {"cached_tokens": 400},
            "completion_tokens_details": {"reasoning_tokens": 300},
        },
    }
    return body | changes


def finished(reason: str | None, **message: Any) -> dict[str, Any]:
    """A completion that finished for a reason."""
    whole = {"role": "assistant", "content": "a project", "refusal": None} | message
    return completion(choices=[{"index": 0, "finish_reason": reason, "message": whole}])


def answer(body: object, status: int = 200, **headers: str) -> httpx2.Response:
    """A JSON answer."""
    return httpx2.Response(status, json=body, headers=headers)


def refusal(message: str, status: int = 400, **fields: Any) -> httpx2.Response:
    """An error as OpenAI sends it."""
    return answer({"error": {"message": message, "type": "invalid_request_error", **fields}}, status)


@pytest.fixture
def openai(script: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A scripted openai/gpt-5-mini."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return make_model(ModelSpec(name="openai/gpt-5-mini"), max_retries=2, http_client=script.client)


@pytest.fixture
def local(script: Any) -> Model:
    """A scripted compatible server."""
    spec = ModelSpec(name="local/llama-3.1-8b", base_url="http://localhost:8080/v1/")
    return make_model(spec, max_retries=0, http_client=script.client)


def bodies(script: Any) -> list[dict[str, Any]]:
    """The JSON bodies that were sent."""
    return [json.loads(request.content) for request in script.requests]


def test_a_reply_and_its_request_are_complete(openai: Any, script: Any, ask: Ask) -> None:
    """Messages, limit, temperature and seed go out; text, label, usage, cost and latency come back."""
    script.answers = [answer(completion())]
    reply = openai.complete(ask(max_output_tokens=900, temperature=0.5, seed=7))
    [sent] = bodies(script)
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
    assert str(script.requests[0].url) == "https://api.openai.com/v1/chat/completions"
    assert (reply.text, reply.stop, reply.model_label) == ("a project", "end", "gpt-5-mini-2025-08-07")
    assert reply.usage == Usage(
        input_tokens=1000, cached_input_tokens=400, output_tokens=500, reasoning_tokens=300
    )
    assert reply.cost_usd == pytest.approx((600 * 0.25 + 400 * 0.025 + 500 * 2.0) / 1e6)
    assert reply.latency_s is not None and not reply.recorded
    assert reply.created.endswith("+00:00")
    assert Reply.model_validate_json(reply.model_dump_json()) == reply


def test_what_was_not_asked_is_not_sent(openai: Any, script: Any, ask: Ask) -> None:
    """Without temperature and seed the provider's defaults stand."""
    script.answers = [answer(completion())]
    openai.complete(ask())
    assert set(bodies(script)[0]) == {"model", "messages", "max_completion_tokens"}


@pytest.mark.parametrize(
    ("body", "stop", "text"),
    [
        (finished("stop"), "end", "a project"),
        (finished("length"), "length", "a project"),
        (finished("content_filter", content=None), "refusal", ""),
        (finished("stop", content=None, refusal="I will not"), "refusal", "I will not"),
        (finished("tool_calls", content=None), "other", ""),
        (finished(None), "other", "a project"),
        (finished("eos_token"), "end", "a project"),
        (finished("stop", content=[{"type": "thinking"}, {"type": "text", "text": "t"}]), "end", "t"),
        (finished("length", content="cut \ud83d"), "length", "cut \ufffd"),
    ],
)
def test_every_ending_is_mapped(
    openai: Any, script: Any, ask: Ask, body: dict[str, Any], stop: str, text: str
) -> None:
    """Truncation, refusal and odd shapes of content become a stop and a text that can be stored."""
    script.answers = [httpx2.Response(200, json=None, text=json.dumps(body), headers=JSON)]
    reply = openai.complete(ask())
    assert (reply.stop, reply.text) == (stop, text)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage()),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, Usage()),
        ({"prompt_tokens": 9, "completion_tokens": 5}, Usage(input_tokens=9, output_tokens=5)),
        ({"prompt_tokens": "9", "completion_tokens": None}, Usage()),
    ],
)
def test_unknown_usage_stays_unknown(
    openai: Any, script: Any, ask: Ask, usage: object, expected: Usage
) -> None:
    """Counts that a server does not give are None, never 0, and so is the cost that depends on them."""
    script.answers = [answer(completion(usage=usage))]
    reply = openai.complete(ask())
    assert reply.usage == expected
    assert reply.cost_usd is None


@pytest.mark.parametrize(
    ("message", "fields", "gone", "instead"),
    [
        (
            "Unsupported parameter: 'max_completion_tokens' is not supported. Use 'max_tokens' instead.",
            {"param": "max_completion_tokens", "code": "unsupported_parameter"},
            "max_completion_tokens",
            "max_tokens",
        ),
        (
            "Unsupported value: 'temperature' does not support 0.5 with this model. "
            "Only the default (1) value is supported.",
            {"param": "temperature", "code": "unsupported_value"},
            "temperature",
            None,
        ),
        ("Unknown argument: seed", {}, "seed", None),
    ],
)
def test_an_unsupported_parameter_is_given_up_once_and_for_all(
    openai: Any,
    script: Any,
    ask: Ask,
    message: str,
    fields: dict[str, str],
    gone: str,
    instead: str | None,
) -> None:
    """A refused parameter is replaced or dropped in the same call, and not tried again in the next."""
    script.answers = [refusal(message, **fields), answer(completion()), answer(completion())]
    request = ask(temperature=0.5, seed=7)
    openai.complete(request)
    openai.complete(request)
    first, second, third = bodies(script)
    assert gone in first and gone not in second
    assert second == third
    assert instead is None or second[instead] == 16_000
    ignored = openai.ignored_parameters
    assert ignored == ({gone} if instead is None else frozenset())


def test_several_parameters_may_be_unsupported(local: Model, script: Any, ask: Ask) -> None:
    """A server that takes nothing but the messages is found out parameter by parameter."""
    script.answers = [
        answer({"detail": [{"loc": ["body", name], "msg": "Extra inputs are not permitted"}]}, 422)
        for name in ("seed", "temperature", "max_tokens")
    ] + [answer(completion())]
    assert local.complete(ask(temperature=0.5, seed=7)).text == "a project"
    assert set(bodies(script)[-1]) == {"model", "messages", "max_completion_tokens"}


def test_a_limit_that_is_too_large_is_not_taken_for_an_unknown_one(
    local: Model, script: Any, ask: Ask
) -> None:
    """A complaint about a value is passed on to the user, not worked around."""
    script.answers = [refusal("max_tokens is too large: 16000. This model supports at most 4096.")]
    with pytest.raises(
        ProviderError, match=r"refused the request \(400\): max_tokens is too large"
    ) as caught:
        local.complete(ask())
    assert not isinstance(caught.value, PermanentProviderError)
    assert len(script.requests) == 1


def test_no_endless_adaptation(local: Model, script: Any, ask: Ask) -> None:
    """A server that refuses both names of the limit is a failure, not a loop."""
    script.answers = [
        refusal("max_tokens: unsupported parameter"),
        refusal("max_completion_tokens: unsupported parameter"),
    ]
    with pytest.raises(ProviderError, match="max_completion_tokens: unsupported"):
        local.complete(ask())


def test_a_compatible_server_gets_max_tokens(local: Model, script: Any, ask: Ask) -> None:
    """Older servers know only max_tokens, so it is tried first there; the price is unknown."""
    script.answers = [answer(completion())]
    reply = local.complete(ask())
    assert bodies(script)[0]["max_tokens"] == 16_000
    assert str(script.requests[0].url) == "http://localhost:8080/v1/chat/completions"
    assert reply.usage.input_tokens == 1000 and reply.cost_usd is None


def test_no_account_leaks_to_a_foreign_server(script: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that belongs to an OpenAI or Anthropic account reaches another provider's base URL."""
    for variable in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(variable, f"secret-{variable}")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-anthropic")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://secret.example/v1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer secret-a\nX-Gateway: secret-b")
    spec = ModelSpec(name="local/llama", base_url="http://localhost:8080/v1")
    model = make_model(spec, max_retries=0, http_client=script.client)
    script.answers = [answer(completion())]
    model.complete(ask())
    assert "secret" not in script.sent_text()
    assert script.requests[0].headers["authorization"] == "Bearer none"


def test_a_compatible_server_gets_the_key_meant_for_it(
    script: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIFTBENCH_API_KEY is for servers behind a base URL, and does not stand in for OpenAI's."""
    monkeypatch.setenv("LIFTBENCH_API_KEY", "own-key")
    spec = ModelSpec(name="local/llama", base_url="http://localhost:8080/v1")
    model = make_model(spec, http_client=script.client)
    script.answers = [answer(completion())]
    model.complete(ask())
    assert script.requests[0].headers["authorization"] == "Bearer own-key"


@pytest.mark.parametrize("by_variable", [True, False])
def test_openai_may_be_moved_by_the_user(
    script: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    """An address given beside `openai/` is a gateway: it gets the key, and its prices are unknown."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    url = "https://gateway.example/v1"
    if by_variable:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
    spec = ModelSpec(name="openai/gpt-5-mini", base_url=None if by_variable else url)
    model = make_model(spec, http_client=script.client)
    script.answers = [answer(completion())]
    assert model.complete(ask()).cost_usd is None
    assert script.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert script.requests[0].url.host == "gateway.example"


def test_a_redirect_does_not_carry_the_key_away(openai: Any, script: Any, ask: Ask) -> None:
    """A server that redirects to another host does not make us send the key there."""
    script.answers = [httpx2.Response(307, headers={"location": "https://elsewhere.example/v1"})]
    script.answers.append(answer(completion()))
    openai.complete(ask())
    first, second = script.requests
    assert KEY in first.headers["authorization"]
    assert second.url.host == "elsewhere.example" and "authorization" not in second.headers


def test_a_passing_failure_is_retried(openai: Any, script: Any, ask: Ask) -> None:
    """A rate limit, then an overload, then an answer: the caller sees the answer."""
    script.answers = [
        answer({"error": {"message": "slow down"}}, 429, **{"retry-after-ms": "1"}),
        answer({"error": {"message": "overloaded"}}, 503, **{"retry-after-ms": "1"}),
        answer(completion()),
    ]
    assert openai.complete(ask()).text == "a project"
    assert len(script.requests) == 3


@pytest.mark.parametrize(
    ("status", "fields", "permanent", "advice"),
    [
        (401, {}, True, "Check OPENAI_API_KEY"),
        (402, {}, True, "Add credit"),
        (403, {}, True, "Check that the key in OPENAI_API_KEY may use this model"),
        (404, {}, True, "Check the model name"),
        (429, {"code": "insufficient_quota"}, True, "Add credit"),
        (429, {}, False, "after 2 retries. Wait, or lower --max-connections"),
        (413, {}, False, "refused the request"),
        (500, {}, False, "after 2 retries. Try again later"),
    ],
)
def test_a_lasting_failure_says_what_to_do(
    openai: Any, script: Any, ask: Ask, status: int, fields: dict[str, str], permanent: bool, advice: str
) -> None:
    """Each status becomes advice; those that asking again cannot mend are permanent; no key is shown."""
    body = {"error": {"message": f"Bad: {KEY}, sk-proj-ab**yz.", **fields}}
    script.answers = [answer(body, status, **{"retry-after-ms": "1"}) for _ in range(3)]
    with pytest.raises(ProviderError) as caught:
        openai.complete(ask())
    message = str(caught.value)
    assert message.startswith("openai/gpt-5-mini: ") and f"({status}): Bad: [key], [key]" in message
    assert advice in message
    assert isinstance(caught.value, PermanentProviderError) is permanent
    assert KEY not in message and "sk-" not in message
    assert caught.value.__suppress_context__


def test_the_key_is_in_no_repr(openai: Any) -> None:
    """Printing a model, or what it is made of, does not show the key."""
    shown = repr(openai) + "".join(repr(value) for value in vars(openai).values())
    assert KEY not in shown


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (httpx2.Response(200, text="<html>hello</html>", headers={"content-type": "text/html"}), "hello"),
        (httpx2.Response(200, text="{broken", headers=JSON), "no usable reply"),
        (answer({"error": {"message": "no capacity"}}), "no capacity"),
        (answer(completion(choices=[])), "no choices"),
        (answer(completion(choices=[None])), "no choices"),
        (answer(completion(choices=[{"index": 0, "finish_reason": "stop"}])), "no choices"),
    ],
)
def test_an_answer_that_is_no_reply_is_a_provider_failure(
    local: Model, script: Any, ask: Ask, reply: httpx2.Response, says: str
) -> None:
    """A web page, half a JSON or an empty list of choices is reported, with a hint at the address."""
    script.answers = [reply]
    with pytest.raises(ProviderError, match=rf"no usable reply: .*{says}|{says}.*end in /v1"):
        local.complete(ask())


def test_silence_is_reported_with_the_limit(local: Model, script: Any, ask: Ask) -> None:
    """A server that does not answer in time is named with the time it was given."""
    script.answers = [httpx2.ReadTimeout("slow")]
    with pytest.raises(ProviderError, match=r"no answer from http://localhost:8080/v1 within 1200 s"):
        local.complete(ask())
