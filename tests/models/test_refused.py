"""What servers mean when they refuse a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.models import ModelOptions, PermanentProviderError
from harness.models.endpoint import NO_KEY, Endpoint
from harness.models.refused import prompt_too_long, refusal_error
from harness.records import Request
from tests.models.answers import READ

Ask = Callable[..., Request]
SERVER = Endpoint("local/m", "http://localhost:8080/v1", "LIFTBENCH_API_KEY", ModelOptions(), NO_KEY)

TOO_LONG = {
    "anthropic": "prompt is too long: 213423 tokens > 200000 maximum",
    "anthropic with the reply": "input length and `max_tokens` exceed context limit: 190000 + 16000 > "
    "200000, decrease input length or `max_tokens` and try again",
    "openai": "This model's maximum context length is 128000 tokens. However, your messages resulted in "
    "130000 tokens. Please reduce the length of the messages.",
    "openai responses": "Your input exceeds the context window of this model.",
    "vllm": "This model's maximum context length is 32768 tokens. However, you requested 40000 tokens "
    "(24000 in the messages, 16000 in the completion).",
    "vllm 0.16": "You passed 31000 input tokens and requested 16000 output tokens. However, the model's "
    "context length is only 32768 tokens, resulting in a maximum input length of 16768 tokens.",
    "vllm, prompt alone": "The prompt (total length 45938) is too long to fit into the model (context "
    "length 4096).",
    "llama.cpp": "the request exceeds the available context size. try increasing the context size",
    "llama.cpp with counts": "request (14429 tokens) exceeds the available context size (8192 tokens)",
    "llama-cpp-python": "Requested tokens (2285) exceed context window of 2048",
    "ollama": "prompt too long; exceeded max context length by 12 tokens",
    "ollama input": "the input length exceeds the context length",
    "tgi": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 32768. Given: 30000 "
    "`inputs` tokens and 16000 `max_new_tokens`",
    "tgi, prompt alone": "Input validation error: `inputs` must have less than 1024 tokens. Given: 1872",
    "sglang": "The input (50000 tokens) is longer than the model's context length (40960 tokens).",
    "lm studio": "The model is loaded with context length of only 4096 tokens",
    "n_ctx": "prompt has 900 tokens, n_ctx = 512",
}


@pytest.mark.parametrize("message", TOO_LONG.values(), ids=TOO_LONG.keys())
def test_a_prompt_that_is_too_long_is_recognised(message: str, ask: Ask) -> None:
    """Each server says it in its own words, and with its own status."""
    for status in (200, 400, 413, 422, 500):
        assert prompt_too_long(status, {"error": {"message": message}})
    assert prompt_too_long(400, {"detail": message}) and prompt_too_long(400, message)
    assert refusal_error(SERVER, ask(), 400, {"message": message}) is None


@pytest.mark.parametrize("status", [401, 402, 403, 404, 408, 429, 503])
def test_other_failures_are_not_a_long_prompt(status: int) -> None:
    """A limit on tokens per minute, a bad key or a missing model is none, whatever words are used."""
    assert not prompt_too_long(status, "tokens exceed the context of your tier", "context_length_exceeded")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"type": "error", "error": {"type": "request_too_large", "message": "Request too large"}}, None),
        ({"message": "Too much", "type": "exceed_context_size_error"}, 400),
        ("No", "context_length_exceeded"),
    ],
)
def test_a_code_says_it_without_words(body: Any, code: object) -> None:
    """Where the server has a word for it, its sentence does not matter."""
    assert prompt_too_long(400, body, code)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 16000. This model supports at most 4096 completion tokens.",
        "Unsupported parameter: 'max_tokens'",
        "messages: at least one message is required",
        "",
    ],
)
def test_other_refusals_are_not_a_long_prompt(message: str, ask: Ask) -> None:
    """A complaint about anything else stays what it is."""
    assert not prompt_too_long(400, {"error": {"message": message}})
    assert refusal_error(SERVER, ask(tools=(READ,)), 400, {"error": {"message": message}}) is None


@pytest.mark.parametrize("server", ["anthropic with the reply", "vllm", "vllm 0.16", "tgi"])
def test_a_limit_that_fills_the_context_is_the_users_to_mend(server: str, ask: Ask) -> None:
    """Where no prompt at all would fit, no student is blamed: the limit on the reply is too high."""
    error = refusal_error(SERVER, ask(max_output_tokens=200_000), 400, TOO_LONG[server])
    assert isinstance(error, PermanentProviderError)
    assert "200,000 tokens leave no room" in str(error) and "Lower --max-tokens" in str(error)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "registry.ollama.ai/library/gemma3:latest does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (500, "Unsupported param: tools"),
        (500, "tools param requires --jinja flag"),
        (404, "No endpoints found that support tool use."),
        (422, "body.tools: Extra inputs are not permitted"),
    ],
)
def test_a_server_without_tools_is_told_to_the_user(status: int, message: str, ask: Ask) -> None:
    """It lasts, and there is a way without tools; a request without any is not blamed on them."""
    error = refusal_error(SERVER, ask(tools=(READ,)), status, message)
    assert isinstance(error, PermanentProviderError)
    assert "Use --delivery body" in str(error) and message.rstrip(".") in str(error)
    assert refusal_error(SERVER, ask(), status, message) is None


@pytest.mark.parametrize(
    "message",
    [
        "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: t1",
        "tools.0.input_schema: Field required",
        "Unsupported parameter: seed",
    ],
)
def test_other_words_about_tools_are_not_taken_for_it(message: str, ask: Ask) -> None:
    """A mistake in how tools are used is not a server without tools."""
    assert refusal_error(SERVER, ask(tools=(READ,)), 400, message) is None
