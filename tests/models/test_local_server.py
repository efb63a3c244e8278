"""Servers on this machine, over real sockets."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import pytest

from harness.errors import ProviderError
from harness.models import Model, PermanentProviderError, make_model
from harness.records import ModelSpec, Request
from tests.fakes.chat_server import listening, serving
from tests.models.answers import anthropic_error, anthropic_events, completion, event_stream, openai_error

Ask = Callable[..., Request]
Act = Callable[[BaseHTTPRequestHandler], None]


def test_a_real_server_is_asked_from_many_threads(ask: Ask) -> None:
    """One model serves parallel calls."""
    with serving(lambda body: str(body["messages"][-1]["content"])) as (url, seen):
        model = make_model(ModelSpec(name="ollama/m", base_url=url), max_retries=0)
        with ThreadPoolExecutor(6) as pool:
            replies = list(pool.map(model.complete, [ask(f"prompt {i}") for i in range(12)]))
    assert [reply.text for reply in replies] == [f"prompt {i}" for i in range(12)]
    assert len(seen) == 12


def test_no_server_at_all(ask: Ask) -> None:
    """A refused connection asks whether the server is running, and names its address."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/v1"
        model = make_model(ModelSpec(name="ollama/m", base_url=url), max_retries=0)
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

    def model(self, *, max_retries: int = 2, timeout_s: float = 30.0) -> Model:
        return make_model(self.spec, max_retries=max_retries, timeout_s=timeout_s)

    @property
    def body(self) -> bytes:
        """A whole answer, as it goes over the wire."""
        return (event_stream(anthropic_events()) if self.claude else json.dumps(completion())).encode()

    def fails(self, status: int, message: str, retry_after: str) -> None:
        body = anthropic_error("some_error", message) if self.claude else openai_error(message)
        self.actions.append(lambda to: self.send(to, json.dumps(body).encode(), status, retry_after))

    def breaks_off(self, to: BaseHTTPRequestHandler) -> None:
        """Send half an answer and reset the connection."""
        self.send(to, self.body[: len(self.body) // 2], length=len(self.body))
        # Closed with this option, a socket sends a reset instead of an orderly end.
        to.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        to.close_connection = True

    def is_silent(self, to: BaseHTTPRequestHandler) -> None:
        self.released.wait()
        to.close_connection = True

    def send(
        self,
        to: BaseHTTPRequestHandler,
        body: bytes,
        status: int = 200,
        retry_after: str = "",
        length: int | None = None,
    ) -> None:
        to.send_response(status)
        streamed = self.claude and status == 200
        to.send_header("content-type", "text/event-stream" if streamed else "application/json")
        to.send_header("content-length", str(len(body) if length is None else length))
        if retry_after:
            to.send_header("retry-after", retry_after)
        to.end_headers()
        to.wfile.write(body)


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
    scripted.fails(429, "slow down", "0.001")
    scripted.fails(529, "overloaded", "0.001")
    scripted.actions.append(lambda to: scripted.send(to, scripted.body))
    assert scripted.model().complete(ask()).text == "a project"
    assert scripted.asked == 3


def test_a_wait_of_hours_is_told_at_once(scripted: Scripted, ask: Ask) -> None:
    """No SDK sleeps for hours because a server says so."""
    scripted.fails(429, "slow down", "7200")
    with pytest.raises(ProviderError, match=r"\(429\): slow down, to be tried again in 7200 s\. Wait"):
        scripted.model().complete(ask())
    assert scripted.asked == 1


def test_a_reset_in_the_middle_is_a_provider_failure(scripted: Scripted, ask: Ask) -> None:
    """Half an answer is no short answer: the failure is reported as one that may pass."""
    scripted.actions.append(scripted.breaks_off)
    with pytest.raises(ProviderError, match=r"no usable reply|cannot be reached") as caught:
        scripted.model(max_retries=0).complete(ask())
    assert not isinstance(caught.value, PermanentProviderError)


def test_a_slow_server_is_given_up(scripted: Scripted, ask: Ask) -> None:
    """Silence beyond the limit is reported with the limit."""
    scripted.actions.append(scripted.is_silent)
    with pytest.raises(ProviderError, match=r"no answer from http://127.* within 0.2 s, after 0 retries"):
        scripted.model(max_retries=0, timeout_s=0.2).complete(ask())
