"""A package index on this machine: simple pages, and wheels with or without HTTP ranges."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.fakes.chat_server import listening


def wheel_bytes(files: Mapping[str, bytes | str], stored_bytes: int = 0) -> bytes:
    """A zip file; `stored_bytes` of zeros come first, uncompressed: the library that nobody wants."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        if stored_bytes:
            archive.writestr(zipfile.ZipInfo("lib/huge.so"), bytes(stored_bytes), zipfile.ZIP_STORED)
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


class FakeIndex:
    """Answers for `wheels` (file name -> bytes); counts what it sends."""

    def __init__(self, wheels: Mapping[str, bytes], *, ranges: bool) -> None:
        self.wheels = dict(wheels)
        self.digests = {name: hashlib.sha256(content).hexdigest() for name, content in wheels.items()}
        self.sent_bytes = 0
        self.requests: list[str] = []
        self._ranges = ranges

    def answer(self, path: str, span: str | None) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of a GET."""
        self.requests.append(path)
        parts = path.strip("/").split("/")
        if parts[0] == "simple":
            return self._page(parts[1])
        content = self.wheels.get(parts[-1])
        if content is None:
            return 404, {}, b""
        if span is None or not self._ranges:
            return 200, {}, content
        first, last = (int(word) for word in span.removeprefix("bytes=").split("-"))
        piece = content[first : last + 1]
        where = f"bytes {first}-{first + len(piece) - 1}/{len(content)}"
        return 206, {"Content-Range": where}, piece

    def _page(self, package: str) -> tuple[int, dict[str, str], bytes]:
        names = [n for n in self.wheels if n.partition("-")[0] == package.replace("-", "_")]
        if not names:
            return 404, {}, b"no such package"
        files = [{"url": f"/files/{n}", "hashes": {"sha256": self.digests[n]}} for n in names]
        kind = "application/vnd.pypi.simple.v1+json"
        return 200, {"Content-Type": kind}, json.dumps({"files": files}).encode()


@contextmanager
def serving(wheels: Mapping[str, bytes], *, ranges: bool = True) -> Iterator[tuple[str, FakeIndex]]:
    """(URL of the simple index, the index) while the block runs."""
    index = FakeIndex(wheels, ranges=ranges)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = index.answer(self.path, self.headers.get("Range"))
            index.sent_bytes += len(body)
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client had seen enough

        def log_message(self, format: str, *args: object) -> None: ...

    with listening(Handler) as address:
        yield f"{address}/simple", index
