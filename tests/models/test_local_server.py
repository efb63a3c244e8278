"""Servers on this machine, over real sockets."""

from __future__ import annotations

import gc
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from harness.errors import ProviderError
from harness.models import Model, PermanentProviderError, make_model
from harness.records import ModelSpec, Request, Usage
from tests.models.answers import (
    READ,
    anthropic_error,
    anthropic_events,
    assistant,
    called,
    completion,
    event_stream,
    openai_error,
    result,
)

Ask = Callable[..., Request]


class _Server(BaseHTTPRequestHandler):
    """A minimal OpenAI-compatible server: knows max_tokens, echoes the prompt, rejects model `gone`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["model"] == "gone":
            self._send(404, {"error": {"message": "model 'gone' not found"}})
        elif "seed" in asked:
            refused = {"message": "no seeds here", "param": "seed", "code": "unsupported_parameter"}
            self._send(400, {"error": refused})
        else:
            text = f"{self.path} {asked['max_tokens']} {asked['messages'][-1]['content']}"
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
            self._send(200, {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]})

    def _send(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a real server on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    # Asked every 10 ms whether to end, not every half second.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    # Models close their connections when collected; only then do the server's threads end.
    gc.collect()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def server_url() -> Iterator[str]:
    """The base URL of an OpenAI-compatible server."""
    with _serving(_Server) as address:
        yield f"{address}/v1"


def test_a_real_server_is_asked_from_many_threads(server_url: str, ask: Ask) -> None:
    """One model serves parallel calls over real sockets, and drops the seed that the server refuses."""
    model = make_model(ModelSpec(name="ollama/m", base_url=server_url), max_retries=0)
    requests = [ask(f"prompt {i}", seed=1, max_output_tokens=100) for i in range(12)]
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(model.complete, requests))
    assert [r.text for r in replies] == [f"/v1/chat/completions 100 prompt {i}" for i in range(12)]
    assert {r.usage for r in replies} == {Usage()} and {r.cost_usd for r in replies} == {None}


def test_a_real_server_without_the_model(server_url: str, ask: Ask) -> None:
    """A model that the server does not have is a permanent failure that shows the address."""
    model = make_model(ModelSpec(name="ollama/gone", base_url=server_url), max_retries=0)
    with pytest.raises(PermanentProviderError, match=r"model 'gone' not found.*127\.0\.0\.1"):
        model.complete(ask())


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

    def __init__(self, provider: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
        self.provider = provider
        self._address = address
        self.actions: list[Callable[[BaseHTTPRequestHandler], None]] = []
        self.asked: list[dict[str, Any]] = []
        self.released = threading.Event()
        """Set when silent requests may end."""

    def model(self, *, max_retries: int = 2, timeout_s: float = 30.0) -> Model:
        """The model on this server."""
        names = {"anthropic": ("anthropic/claude-haiku-4-5", ""), "openai": ("local/m", "/v1")}
        name, path = names[self.provider]
        spec = ModelSpec(name=name, base_url=self._address + path)
        return make_model(spec, max_retries=max_retries, timeout_s=timeout_s)

    def body(self, *, calls: bool = False, text: str = "a project") -> bytes:
        """A whole answer, as it goes over the wire."""
        made = called("a.md", "b.md") if calls else ()
        if self.provider == "anthropic":
            written = [(call.id, call.name, [call.arguments]) for call in made]
            return event_stream(anthropic_events(text, "tool_use" if calls else "end_turn", written)).encode()
        sent = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in made
        ]
        more = {"tool_calls": sent} if calls else {}
        return json.dumps(completion("tool_calls" if calls else "stop", content=text, **more)).encode()

    def answers(self, body: bytes) -> None:
        """Next, answer."""
        self.actions.append(lambda handler: self._send(handler, 200, body))

    def fails(self, status: int, message: str, **headers: str) -> None:
        """Next, refuse."""
        body = (
            anthropic_error("some_error", message) if self.provider == "anthropic" else openai_error(message)
        )
        data = json.dumps(body).encode()
        self.actions.append(lambda handler: self._send(handler, status, data, **headers))

    def breaks_off(self) -> None:
        """Next, send half an answer and reset the connection."""

        def act(handler: BaseHTTPRequestHandler) -> None:
            whole = self.body()
            self._send(handler, 200, whole[: len(whole) // 2], length=len(whole))
            # Closed with this option, a socket sends a reset instead of an orderly end.
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.close_connection = True

        self.actions.append(act)

    def is_silent(self) -> None:
        """Next, say nothing until released."""

        def act(handler: BaseHTTPRequestHandler) -> None:
            self.released.wait()
            handler.close_connection = True

        self.actions.append(act)

    def _send(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        body: bytes,
        *,
        length: int | None = None,
        **headers: str,
    ) -> None:
        streamed = self.provider == "anthropic" and status == 200
        handler.send_response(status)
        handler.send_header("content-type", "text/event-stream" if streamed else "application/json")
        handler.send_header("content-length", str(len(body) if length is None else length))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)


@pytest.fixture(params=["anthropic", "openai"])
def scripted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    """A server for each SDK in turn."""
    made: list[Scripted] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            [server] = made
            server.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            server.actions.pop(0)(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _serving(Handler) as address:
        made.append(Scripted(request.param, address, monkeypatch))
        yield made[0]
        made[0].released.set()


def test_a_rate_limit_passes_over_a_socket(scripted: Scripted, ask: Ask) -> None:
    """429 with `retry-after`, an overload, then an answer."""
    scripted.fails(429, "slow down", retry_after="0.001")
    scripted.fails(529, "overloaded", retry_after="0.001")
    scripted.answers(scripted.body())
    assert scripted.model().complete(ask()).text == "a project"
    assert len(scripted.asked) == 3


def test_a_wait_of_hours_is_told_at_once(scripted: Scripted, ask: Ask) -> None:
    """No SDK sleeps for hours because a server says so."""
    scripted.fails(429, "slow down", retry_after="7200")
    with pytest.raises(ProviderError, match=r"\(429\): slow down, to be tried again in 7200 s\. Wait"):
        scripted.model().complete(ask())
    assert len(scripted.asked) == 1


def test_a_reset_in_the_middle_is_a_provider_failure(scripted: Scripted, ask: Ask) -> None:
    """Half an answer is no short answer: the failure is told, as one that may pass."""
    scripted.breaks_off()
    with pytest.raises(ProviderError, match=r"no usable reply|cannot be reached") as caught:
        scripted.model(max_retries=0).complete(ask())
    assert not isinstance(caught.value, PermanentProviderError)


def test_a_slow_server_is_given_up(scripted: Scripted, ask: Ask) -> None:
    """Silence beyond the limit is told with the limit."""
    scripted.is_silent()
    with pytest.raises(ProviderError, match=r"no answer from http://127.* within 0.2 s, after 0 retries"):
        scripted.model(max_retries=0, timeout_s=0.2).complete(ask())


def test_a_conversation_with_tools_over_a_socket(scripted: Scripted, ask: Ask) -> None:
    """Calls come in, results go out, and the answer follows."""
    scripted.answers(scripted.body(calls=True, text=""))
    scripted.answers(scripted.body())
    model, first = scripted.model(), ask(tools=(READ,))
    reply = model.complete(first)
    assert (reply.stop, reply.tool_calls) == ("tool", called("a.md", "b.md"))
    results = [result(call, "text of it") for call in reply.tool_calls]
    told = (*first.messages, assistant("", *reply.tool_calls), *results)
    assert model.complete(ask(tools=(READ,), messages=told, step=1)).stop == "end"
    assert json.dumps(scripted.asked[1]).count("text of it") == 2
