"""A client of `liftbench serve`, standard library only: submit replies or projects, wait for grades.

LIFTBENCH_SERVE_TOKEN=... python examples/liftbench_client.py http://localhost:8642 l1/rms_norm reply.md
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


class Client:
    """Requests are repeated while the queue is full or the server is restarted: orders are idempotent."""

    def __init__(self, url: str, token: str, patience_s: float = 600.0) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._patience_s = patience_s

    def submit(self, task: str, given: str | dict[str, str]) -> str:
        """Order a grade of a model's reply, or of a project (path to text); its id."""
        kind = "reply" if isinstance(given, str) else "files"
        return str(self._ask("/grades", {"task": task, kind: given})["id"])

    def grade(self, key: str, within_s: float = 3600.0) -> dict[str, Any]:
        """Wait for `{"rewards": ..., "grade": ..., "unscored": ...}`. Raises TimeoutError."""
        give_up = time.monotonic() + within_s
        while time.monotonic() < give_up:
            if (answer := self._ask(f"/grades/{key}?wait=30"))["status"] == "done":
                return answer
        raise TimeoutError(f"{key} was not graded within {within_s:g} s")

    def _ask(self, path: str, data: object = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        body = None if data is None else json.dumps(data).encode()
        give_up = time.monotonic() + self._patience_s
        while True:
            request = urllib.request.Request(self._url + path, body, headers)
            try:
                with urllib.request.urlopen(request, timeout=90) as response:
                    return dict(json.load(response))
            except urllib.error.HTTPError as error:
                if error.code not in (429, 503) or time.monotonic() > give_up:
                    raise RuntimeError(f"{error.code}: {error.read().decode()}") from error
            except OSError:  # no connection, or cut off
                if time.monotonic() > give_up:
                    raise
            time.sleep(1.0)


if __name__ == "__main__":
    client = Client(sys.argv[1], os.environ["LIFTBENCH_SERVE_TOKEN"])
    order = client.submit(sys.argv[2], Path(sys.argv[3]).read_text(encoding="utf-8"))
    print(json.dumps(client.grade(order)["rewards"], indent=1))
