"""Servers that speak OpenAI's chat completions in their own way, through the SDK's own transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.models import Model, make_model
from harness.records import ModelSpec, Request
from tests.models.answers import READ, completion

pytest.importorskip("openai", reason="needs openai (pip install openai)")
httpx2 = pytest.importorskip("httpx2", reason="needs openai (pip install openai)")

Ask = Callable[..., Request]


def answer(body: object) -> httpx2.Response:
    """A JSON answer."""
    return httpx2.Response(200, json=body)


@pytest.fixture
def local(script: Any) -> Model:
    """A scripted compatible server."""
    spec = ModelSpec(name="local/llama-3.1-8b", base_url="http://localhost:8080/v1/")
    return make_model(spec, max_retries=0, http_client=script.client)


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
