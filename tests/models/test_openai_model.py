"""OpenAI's models and compatible servers, through the SDK's own transport."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from harness.errors import ProviderError
from harness.models import Model, PermanentProviderError, make_model
from harness.models.openai_model import calls_in, sent_messages, sent_tools
from harness.records import ModelSpec, Reply, Request, ToolCall, Usage
from tests.models.answers import READ, assistant, called, completion, result, user

KEY = "sk-test-0123456789"
JSON = {"content-type": "application/json"}
Ask = Callable[..., Request]


def answer(body: object, status: int = 200, **headers: str) -> httpx2.Response:
    """A JSON answer."""
    return httpx2.Response(status, json=body, headers=headers)


def ended(reason: str | None, **message: Any) -> dict[str, Any]:
    """A completion that ended for a reason."""
    return completion(reason, **message)


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
    whole = completion()
    whole["usage"] |= {
        "prompt_tokens_details": {"cached_tokens": 200},
        "completion_tokens_details": {"reasoning_tokens": 300},
    }
    script.answers = [answer(whole)]
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
    assert (reply.text, reply.stop, reply.model_label) == ("a project", "end", "gpt-5-mini")
    assert reply.usage == Usage(
        input_tokens=600, cached_input_tokens=200, output_tokens=500, reasoning_tokens=300
    )
    assert reply.cost_usd == pytest.approx((400 * 0.25 + 200 * 0.025 + 500 * 2.0) / 1e6)
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
        (ended("stop"), "end", "a project"),
        (ended("length"), "length", "a project"),
        (ended("content_filter", content=None), "refusal", ""),
        (ended("stop", content=None, refusal="I will not"), "refusal", "I will not"),
        (ended("tool_calls", content=None), "other", ""),
        (ended(None), "other", "a project"),
        (ended("eos_token"), "end", "a project"),
        (ended("stop", content=[{"type": "thinking"}, {"type": "text", "text": "t"}]), "end", "t"),
        (ended("length", content="cut \ud83d"), "length", "cut \ufffd"),
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
    script.answers = [answer(completion() | {"usage": usage})]
    reply = openai.complete(ask())
    assert reply.usage == expected
    assert reply.cost_usd is None


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


def test_a_compatible_server_gets_max_tokens(local: Model, script: Any, ask: Ask) -> None:
    """Older servers know only max_tokens, so it is tried first there; the price is unknown."""
    script.answers = [answer(completion())]
    reply = local.complete(ask())
    assert bodies(script)[0]["max_tokens"] == 16_000
    assert str(script.requests[0].url) == "http://localhost:8080/v1/chat/completions"
    assert reply.usage.input_tokens == 600 and reply.cost_usd is None


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


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (httpx2.Response(200, text="<html>hello</html>", headers={"content-type": "text/html"}), "hello"),
        (httpx2.Response(200, text="{broken", headers=JSON), "no usable reply"),
        (answer({"error": {"message": "no capacity"}}), "no capacity"),
        (answer(completion() | {"choices": []}), "no choices"),
        (answer(completion() | {"choices": [None]}), "no choices"),
        (answer(completion() | {"choices": [{"index": 0, "finish_reason": "stop"}]}), "no choices"),
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


@pytest.mark.parametrize(
    ("name", "code"), [("temperature", "unsupported_value"), ("seed", "unsupported_parameter")]
)
def test_an_unsupported_parameter_is_sent_no_more(
    openai: Any, script: Any, ask: Ask, name: str, code: str
) -> None:
    """OpenAI's code says which: the request is repeated without it, and later ones are sent without it."""
    refused = refusal("not with this model", param=name, code=code)
    script.answers = [refused, answer(completion()), answer(completion())]
    for _ in range(2):
        openai.complete(ask(temperature=0.5, seed=7))
    assert [name in body for body in bodies(script)] == [True, False, False]


@pytest.mark.parametrize("param", ["max_completion_tokens", "messages", None])
def test_other_parameters_are_not_dropped(openai: Any, script: Any, ask: Ask, param: str | None) -> None:
    """The limit on output tokens is never dropped, and no request is repeated unchanged."""
    script.answers = [refusal("no", param=param, code="unsupported_parameter")]
    with pytest.raises(ProviderError, match="refused the request"):
        openai.complete(ask(temperature=0.5))


@pytest.mark.parametrize("tools", [(), (READ,)])
def test_a_refusal_of_a_request_with_tools_names_the_alternative(
    local: Model, script: Any, ask: Ask, tools: tuple[Any, ...]
) -> None:
    """Servers refuse tools in many words; a request without any is not blamed on them."""
    script.answers = [refusal("this model does not support tools")]
    with pytest.raises(ProviderError) as caught:
        local.complete(ask(tools=tools))
    assert ("--delivery body" in str(caught.value)) is bool(tools)


Ask = Callable[..., Request]


def test_a_local_server_may_call_in_its_own_way(local: Model, script: Any, ask: Ask) -> None:
    """Arguments as an object, no ids, `stop` for a reason: calls are taken, each with an id of its own."""
    call = {"function": {"name": "read_file", "arguments": {"path": "a.md"}}}
    script.answers = [
        answer(completion("stop", content="", tool_calls=[call, call, {"id": "c00000000", **call}]))
    ]
    reply = local.complete(ask(tools=(READ,), step=3))
    assert reply.stop == "tool"
    assert [c.arguments for c in reply.tool_calls] == ['{"path": "a.md"}'] * 3
    ids = [c.id for c in reply.tool_calls]
    assert len(set(ids)) == 3 and ids[2] == "c00000000"
    # Mistral's servers take no other.
    assert all(len(i) == 9 and i.isalnum() for i in ids)


def test_a_call_in_the_text_is_text(local: Model, script: Any, ask: Ask) -> None:
    """A server that does not parse its model's calls leaves them to the reader."""
    text = '<tool_call>{"name": "read_file", "arguments": {}}</tool_call>'
    script.answers = [answer(completion("stop", content=text))]
    reply = local.complete(ask(tools=(READ,)))
    assert (reply.text, reply.stop, reply.tool_calls) == (text, "end", ())


def test_an_overflow_inside_a_success_is_an_overflow(local: Model, script: Any, ask: Ask) -> None:
    """Some servers say 200 and put the refusal into the body."""
    error = {"code": 400, "message": "too much", "type": "exceed_context_size_error", "n_ctx": 8192}
    script.answers = [answer({"error": error})]
    assert local.complete(ask()).stop == "overflow"


@pytest.mark.parametrize("fields", [{"model": 3}, {"model": None}, {"usage": "none"}])
def test_odd_fields_are_no_failure(local: Model, script: Any, ask: Ask, fields: dict[str, Any]) -> None:
    """What the SDK did not validate is taken as far as it means something."""
    script.answers = [answer(completion() | fields)]
    reply = local.complete(ask())
    assert reply.text == "a project" and reply.model_label in ("3", "llama-3.1-8b", "gpt-5-mini")


def test_calls_and_results_go_back_one_by_one() -> None:
    """Each result is a message of its own; an answer that only calls has null for its text."""
    one, two = called("a.md", "b.md")
    told = [user("go"), assistant("", one, two), result(one, "A"), result(two, "B"), user("hurry")]
    function = {"name": "read_file", "arguments": '{"path": "a.md"}'}
    other = {"name": "read_file", "arguments": '{"path": "b.md"}'}
    assert sent_messages(told) == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_0", "type": "function", "function": function},
                {"id": "call_1", "type": "function", "function": other},
            ],
        },
        {"role": "tool", "tool_call_id": "call_0", "content": "A"},
        {"role": "tool", "tool_call_id": "call_1", "content": "B"},
        {"role": "user", "content": "hurry"},
    ]


def test_broken_arguments_go_back_as_json() -> None:
    """Local servers parse the arguments of earlier calls, and fail on what is no JSON object."""
    broken = ToolCall(id="t", name="read_file", arguments='{"path": "a.m')
    [sent] = sent_messages([assistant("", broken)])
    arguments = sent["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"invalid_json": '{"path": "a.m'}


def test_tools_are_functions() -> None:
    """Name, description and schema stand under `function`."""
    [sent] = sent_tools([READ])
    assert sent["type"] == "function"
    assert sent["function"] == {
        "name": READ.name,
        "description": READ.description,
        "parameters": READ.parameters,
    }


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (None, []),
        ("none", []),
        ([{"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}], [("a", "f", '{"x": 1}')]),
        ([{"function": {"name": "f", "arguments": {"x": "é"}}}], [(None, "f", '{"x": "é"}')]),
        ([{"function": {"name": "f"}}, {"type": "custom"}, None], [(None, "f", "")]),
        ([SimpleNamespace(id="a", function=SimpleNamespace(name="f", arguments="{"))], [("a", "f", "{")]),
    ],
)
def test_calls_are_read_in_every_shape(calls: Any, expected: list[Any]) -> None:
    """Objects for arguments, no ids, no types, the SDK's models or plain dicts."""
    assert list(calls_in(SimpleNamespace(tool_calls=calls))) == expected
