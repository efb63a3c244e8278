"""Servers on this machine: any handler, and an OpenAI-compatible one."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Refusal:
    """An error, in place of a reply."""

    status: int = 400
    message: str = "no \x1b[31mthanks"


Answer = Callable[[dict[str, Any]], str | Refusal]
"""From the body of a request to the text of the reply."""


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[str]:
    """The address of a server with that handler, while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    # Asked every 10 ms whether to end, not every half second.
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        gc.collect()  # models close their connections when collected; only then do handlers' threads end
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serving(answer: Answer, port: int = 0) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The base URL, and the bodies of the requests so far, each with its `authorization` header."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append({"authorization": self.headers["Authorization"], **body})
            said = answer(body)
            refused = isinstance(said, Refusal)
            data = json.dumps({"error": {"message": said.message}} if refused else _completion(said)).encode()
            self.send_response(said.status if refused else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with listening(Handler, port) as address:
        yield f"{address}/v1", seen


def _completion(text: str) -> dict[str, Any]:
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "tiny-llama",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200},
    }
