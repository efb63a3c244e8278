"""Refusals of servers: a prompt that is too long, and waits that are too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from harness.models import ModelOptions, PermanentProviderError
from harness.models.endpoint import NO_KEY, Endpoint, long_wait_s, prompt_too_long, refuse_long_wait
from harness.records import Request

Ask = Callable[..., Request]
SERVER = Endpoint("local/m", "http://localhost:8080/v1", "LIFTBENCH_API_KEY", ModelOptions(), NO_KEY)

OPENAI = (
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens."
)
ANTHROPIC = "prompt is too long: 213423 tokens > 200000 maximum"
VLLM = "maximum context length is 32768 tokens. However, you requested 40000 (24000 in the messages)."


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"error": {"message": OPENAI}}, None),
        (400, {"message": VLLM}, None),
        (400, {"error": {"type": "invalid_request_error", "message": ANTHROPIC}}, None),
        (413, {"error": {"type": "request_too_large", "message": "Request too large"}}, None),
        (200, {"message": "Too much", "type": "exceed_context_size_error"}, 400),
        (400, "No", "context_length_exceeded"),
    ],
)
def test_a_prompt_that_is_too_long_is_recognized(status: int, body: Any, code: object, ask: Ask) -> None:
    """By the documented code, or by the sentence of an API that has none."""
    assert prompt_too_long(SERVER, ask(), status, body, code)


@pytest.mark.parametrize(
    ("status", "message"),
    [(429, OPENAI), (400, "max_tokens is too large: 16000. This model supports at most 4096."), (400, "")],
)
def test_other_failures_are_not_a_long_prompt(status: int, message: str, ask: Ask) -> None:
    """A limit on tokens per minute, a bad key or another complaint stays what it is."""
    assert not prompt_too_long(SERVER, ask(), status, {"error": {"message": message}})


def test_a_limit_that_fills_the_context_is_the_users_to_repair(ask: Ask) -> None:
    """Where no prompt at all would fit, no student is blamed: the limit on the reply is too high."""
    with pytest.raises(PermanentProviderError, match=r"200,000 tokens leave no room.*Lower --max-tokens"):
        prompt_too_long(SERVER, ask(max_output_tokens=200_000), 400, {"error": {"message": VLLM}})


@pytest.mark.parametrize(
    ("value", "refused"),
    [(None, False), ("120", False), ("soon", False), ("121", True)],
)
def test_a_wait_of_more_than_two_minutes_is_refused(value: str | None, refused: bool) -> None:
    """The SDK waits and tries again only up to two minutes."""
    response = httpx2.Response(429, headers={} if value is None else {"Retry-After": value})
    refuse_long_wait(response)
    assert (long_wait_s(response.headers) is not None) is refused
    assert (response.headers.get("x-should-retry") == "false") is refused
