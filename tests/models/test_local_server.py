"""Servers on this machine, over real sockets."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler

import pytest

from harness.errors import PermanentProviderError, ProviderError
from harness.models import ModelOptions
from harness.models.providers import make_model
from harness.records import ModelSpec, Reply, Request
from tests.fakes.chat_server import listening, serving
from tests.models.answers import (
    anthropic_error,
    anthropic_events,
    completion,
    event_stream,
    openai_error,
    text_block,
)

Ask = Callable[..., Request]
Act = Callable[[BaseHTTPRequestHandler], None]


def test_a_real_server_is_asked_from_many_threads(ask: Ask) -> None:
    """One model serves parallel calls."""
    with serving(lambda body: str(body["messages"][-1]["content"])) as (url, seen):
        model = make_model(ModelSpec(name="ollama/m", base_url=url), ModelOptions(max_retries=0))
        with ThreadPoolExecutor(6) as pool:
            replies = list(pool.map(model.complete, [ask(f"prompt {i}") for i in range(12)]))
    assert [reply.text for reply in replies] == [f"prompt {i}" for i in range(12)]
    assert len(seen) == 12


def test_no_server_at_all(ask: Ask) -> None:
    """A refused connection asks whether the server is running, and names its address."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        model = make_model(ModelSpec(name="ollama/m", base_url=url), ModelOptions(max_retries=0))
        with pytest.raises(ProviderError, match=rf"{url} cannot be reached .*Is the server running"):
            model.complete(ask())


class Scripted:
    """A server of one provider's kind that does prepared things, one for each request."""

    def __init__(self, provider: str, address: str) -> None:
        self.claude = provider == "anthropic"
        name, path = ("anthropic/claude-haiku-4-5", "") if self.claude else ("local/m", "/v1")
        self.spec = ModelSpec(name=name, base_url=address + path)
        self.actions: list[Act] = []
        self.asked = 0
        self.released = threading.Event()
        """Set when silent requests may end."""

    def complete(self, request: Request, retries: int = 2, timeout_s: float = 30.0) -> Reply:
        return make_model(self.spec, ModelOptions(retries, timeout_s)).complete(request)

    def answers(self, to: BaseHTTPRequestHandler, *, half: bool = False) -> None:
        """Send an answer; half of one, then a reset of the connection."""
        events = event_stream(anthropic_events(text_block("a project")))
        body = (events if self.claude else json.dumps(completion())).encode()
        kind = "text/event-stream" if self.claude else "application/json"
        self._head(to, 200, len(body), kind)
        to.wfile.write(body[: len(body) // 2] if half else body)
        if half:
            # Closed with this option, a socket sends a reset instead of an orderly end.
            to.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            to.close_connection = True

    def refuses(self, status: int, message: str, retry_after: str) -> Act:
        error = anthropic_error(message) if self.claude else openai_error(message)
        body = json.dumps(error).encode()

        def act(to: BaseHTTPRequestHandler) -> None:
            self._head(to, status, len(body), "application/json", ("retry-after", retry_after))
            to.wfile.write(body)

        return act

    def is_silent(self, to: BaseHTTPRequestHandler) -> None:
        self.released.wait()
        to.close_connection = True

    @staticmethod
    def _head(
        to: BaseHTTPRequestHandler, status: int, length: int, kind: str, *more: tuple[str, str]
    ) -> None:
        to.send_response(status)
        for name, value in (("content-type", kind), ("content-length", str(length)), *more):
            to.send_header(name, value)
        to.end_headers()


@pytest.fixture(params=["anthropic", "openai"])
def scripted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    """A server for each SDK in turn."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    made: list[Scripted] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            made[0].asked += 1
            made[0].actions.pop(0)(self)

        def log_message(self, format: str, *args: object) -> None: ...

    with listening(Handler) as address:
        made.append(Scripted(request.param, address))
        yield made[0]
        made[0].released.set()


def test_a_rate_limit_passes_over_a_socket(scripted: Scripted, ask: Ask) -> None:
    """429 with `retry-after`, an overload, then an answer."""
    scripted.actions += [scripted.refuses(429, "slow down", "0.001"), scripted.refuses(529, "busy", "0.001")]
    scripted.actions.append(scripted.answers)
    assert scripted.complete(ask()).text == "a project"
    assert scripted.asked == 3


def test_a_wait_of_more_than_two_minutes_is_told_at_once(scripted: Scripted, ask: Ask) -> None:
    """No SDK sleeps for hours because a server says so."""
    scripted.actions.append(scripted.refuses(429, "slow down", "121"))
    with pytest.raises(ProviderError, match=r"\(429\): slow down, to be tried again in 121 s\. Wait"):
        scripted.complete(ask())
    assert scripted.asked == 1
    scripted.actions.append(scripted.refuses(503, "closed", formatdate(time.time() + 86_400, usegmt=True)))
    with pytest.raises(ProviderError, match=r"to be tried again in 8\d{4} s"):
        scripted.complete(ask())
    assert scripted.asked == 2


def test_a_reset_in_the_middle_is_a_provider_failure(scripted: Scripted, ask: Ask) -> None:
    """Half an answer is no short answer: the failure is reported as one that may pass."""
    scripted.actions.append(lambda to: scripted.answers(to, half=True))
    with pytest.raises(ProviderError, match=r"no usable reply|cannot be reached") as caught:
        scripted.complete(ask(), retries=0)
    assert not isinstance(caught.value, PermanentProviderError)


def test_a_slow_server_is_given_up(scripted: Scripted, ask: Ask) -> None:
    """Silence beyond the limit is reported with the limit."""
    scripted.actions.append(scripted.is_silent)
    with pytest.raises(ProviderError, match=r"no answer from http://127.* within 0.2 s, after 0 retries"):
        scripted.complete(ask(), retries=0, timeout_s=0.2)
