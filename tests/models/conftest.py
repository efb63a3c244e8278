"""What the model tests share: an environment without keys, requests, and a scripted transport."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from harness.records import Message, Request, Sampling, Tool

if TYPE_CHECKING:
    import httpx2


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's own accounts."""
    for variable in list(os.environ):
        if variable.startswith(("ANTHROPIC_", "OPENAI_", "LIFTBENCH_")):
            monkeypatch.delenv(variable)


class Script:
    """A transport that gives prepared answers in order, and keeps the requests."""

    def __init__(self) -> None:
        import httpx2

        self.answers: list[httpx2.Response | Exception] = []
        self.requests: list[httpx2.Request] = []
        self.client = httpx2.Client(transport=httpx2.MockTransport(self._answer), follow_redirects=True)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sent_text(self) -> str:
        """All that went out, headers included."""
        return "\n".join(f"{r.url}\n{r.headers.multi_items()}\n{r.content!r}" for r in self.requests)


@pytest.fixture
def script() -> Iterator[Script]:
    """A scripted transport."""
    made = Script()
    yield made
    made.client.close()


@pytest.fixture
def ask() -> Callable[..., Request]:
    """Makes a request: `ask("add two vectors", temperature=0.2, arm=...)`."""

    def make(
        text: str = "write a kernel",
        *,
        system: str | None = "you write kernels",
        task: str = "l1/add",
        arm: str = "without_skill",
        repeat: int = 0,
        turn: int = 0,
        step: int = 0,
        tools: tuple[Tool, ...] = (),
        messages: tuple[Message, ...] | None = None,
        **sampling: float,
    ) -> Request:
        head = () if system is None else (Message(role="system", content=system),)
        return Request(
            messages=messages or (*head, Message(role="user", content=text)),
            sampling=Sampling.model_validate(sampling),
            task=task,
            arm=arm,
            repeat=repeat,
            turn=turn,
            step=step,
            tools=tools,
        )

    return make
