"""What the model tests share: an environment without keys, requests, and models on a scripted transport."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from harness.models import Model, ModelOptions
from harness.models.providers import make_model
from harness.records import Message, ModelSpec, Request, Sampling

KEYS = {"ANTHROPIC_API_KEY": "sk-ant-test-0123456789", "OPENAI_API_KEY": "sk-test-0123456789"}


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's own accounts."""
    for variable in list(os.environ):
        if variable.startswith(("ANTHROPIC_", "OPENAI_", "LIFTBENCH_")):
            monkeypatch.delenv(variable)


class Script:
    """A transport that gives prepared answers in order, and keeps the requests."""

    def __init__(self) -> None:
        self.answers: list[httpx2.Response | Exception] = []
        self.requests: list[httpx2.Request] = []
        self.client = httpx2.Client(transport=httpx2.MockTransport(self._answer), follow_redirects=True)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The JSON bodies that were sent."""
        return [json.loads(request.content) for request in self.requests]

    def model(self, name: str, base_url: str | None = None, retries: int = 2) -> Model:
        """A model on this transport."""
        options = ModelOptions(max_retries=retries, http_client=self.client)
        return make_model(ModelSpec(name=name, base_url=base_url), options)


@pytest.fixture
def script() -> Iterator[Script]:
    """A scripted transport."""
    made = Script()
    yield made
    made.client.close()


@pytest.fixture
def claude(script: Script, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A scripted Claude."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEYS["ANTHROPIC_API_KEY"])
    return script.model("anthropic/claude-haiku-4-5")


@pytest.fixture
def openai(script: Script, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A scripted model of OpenAI."""
    monkeypatch.setenv("OPENAI_API_KEY", KEYS["OPENAI_API_KEY"])
    return script.model("openai/gpt-5-mini")


@pytest.fixture
def local(script: Script) -> Model:
    """A scripted OpenAI-compatible server."""
    return script.model("local/llama-3.1-8b", "http://localhost:8080/v1/", retries=0)


@pytest.fixture
def ask() -> Callable[..., Request]:
    """Makes a request: `ask("add two vectors", temperature=0.2, arm=...)`."""

    def make(
        text: str = "write a kernel", *, messages: tuple[Message, ...] | None = None, **more: Any
    ) -> Request:
        told = (Message(role="system", content="you write kernels"), Message(role="user", content=text))
        sampling = {name: more.pop(name) for name in Sampling.model_fields if name in more}
        fields = {"task": "l1/add", "arm": "without_skill", "repeat": 0} | more
        return Request(messages=messages or told, sampling=Sampling(**sampling), **fields)

    return make
