"""An OpenAI-compatible server on this machine, over real sockets."""

from __future__ import annotations

import gc
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from harness.errors import ProviderError
from harness.models import PermanentProviderError, make_model
from harness.records import ModelSpec, Request, Usage

pytest.importorskip("openai", reason="needs openai (pip install openai)")

Ask = Callable[..., Request]


class _Server(BaseHTTPRequestHandler):
    """A minimal OpenAI-compatible server: knows max_tokens, echoes the prompt, rejects model `gone`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["model"] == "gone":
            self._send(404, {"error": {"message": "model 'gone' not found"}})
        elif "seed" in asked:
            self._send(400, {"error": {"message": "seed: unrecognized request argument"}})
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


@pytest.fixture
def server_url() -> Iterator[str]:
    """The base URL of a real server on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    # Models close their connections when collected; only then do the server's threads end.
    gc.collect()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_real_server_is_asked_from_many_threads(server_url: str, ask: Ask) -> None:
    """One model object serves parallel calls over real sockets, and learns about seeds on the way."""
    model = make_model(ModelSpec(name="ollama/m", base_url=server_url), max_retries=0)
    requests = [ask(f"prompt {i}", seed=1, max_output_tokens=100) for i in range(12)]
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(model.complete, requests))
    assert [r.text for r in replies] == [f"/v1/chat/completions 100 prompt {i}" for i in range(12)]
    assert {r.usage for r in replies} == {Usage()} and {r.cost_usd for r in replies} == {None}
    assert model.ignored_parameters == {"seed"}


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
