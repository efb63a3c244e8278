"""What `liftbench eval` says, and how it ends, where a provider fails."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_eval import ROOT, Place, _Server

pytest.importorskip("openai", reason="needs openai (pip install openai)")
pytestmark = pytest.mark.usefixtures("toolchain")


class _Refusing(_Server):
    """Refuses requests: those with a skill, or all; the reply to any other is no project."""

    refuses = "<skill"
    status = 400

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        refused = self.refuses in body["messages"][-1]["content"]
        message = {"role": "assistant", "content": "I cannot."}
        answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
        answer["choices"] = [{"index": 0, "finish_reason": "stop", "message": message}]
        data = json.dumps({"error": {"message": "no \x1b[31mthanks"}} if refused else answer).encode()
        self.send_response(self.status if refused else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serving(port: int = 0, **behavior: Any) -> Iterator[str]:
    """The base URL of a server on this machine."""
    httpd = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Refusing,), behavior))
    threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_port}/v1"
    httpd.shutdown()
    httpd.server_close()


def listed(place: Place) -> dict[str, Any]:
    """The only run, as `liftbench runs` lists it."""
    command = [sys.executable, "-m", "harness.cli.main", "runs", "--json", "--runs-dir", place.root / "runs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    [row] = json.loads(done.stdout)
    return {name: row[name] for name in ("scored", "lost", "planned")}


def test_an_unreachable_server_ends_an_eval_at_once_and_the_same_command_resumes(tmp_path: Path) -> None:
    """No trial is counted, one message says which URL and why, exit 1; with the server it is finished."""
    place = Place(tmp_path, ("one",))
    with socket.socket() as held:  # bound and not listening: refused
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        url = f"http://127.0.0.1:{port}/v1"
        words = ["-m", "local/m", "--base-url", url, "--runs", "3", "--metric", "compiles"]
        code, out, err = place.run(*words, "--fail-under", "compiles=-1")
    assert code == 1
    assert err.count("cannot be reached") == 1
    last = f"liftbench: local/m: {url} cannot be reached ([Errno 111] Connection refused). Is the server"
    assert err.splitlines()[-2].startswith(last)
    assert err.splitlines()[-1] == "finished trials are kept, the same command resumes"
    assert "nothing is scored: 0 of 6 trials" in out and "inconclusive" not in out
    assert listed(place) == {"scored": 0, "lost": 0, "planned": 6}
    with serving(port, refuses="never"):
        code, _, err = place.run(*words)
    assert code == 0, err
    assert listed(place) == {"scored": 6, "lost": 0, "planned": 6}


def test_a_refused_key_ends_an_eval_at_once(tmp_path: Path) -> None:
    """401 is told once with the variable that holds the key; nothing is counted and the exit code is 1."""
    place = Place(tmp_path, ("one",))
    with serving(refuses="", status=401) as url:
        code, _, err = place.run("-m", "local/m", "--base-url", url, "--runs", "2")
    assert code == 1
    assert err.count("the API key was refused (401): no thanks. Check LIFTBENCH_API_KEY") == 1
    assert listed(place) == {"scored": 0, "lost": 0, "planned": 4}


def test_lost_trials_are_told_once_with_a_count(tmp_path: Path) -> None:
    """Some lost: exit 0 and a warning with the reason; a threshold then cannot be met."""
    place = Place(tmp_path, ("one",))
    with serving() as url:
        words = ["-m", "local/m", "--base-url", url, "--runs", "3", "--metric", "compiles"]
        code, out, err = place.run(*words)
        assert code == 0, err
        assert "warning: 3 of 6 trials are lost" in err and "the same `eval` tries them again" in err
        assert "  3 x provider: local/m: the provider refused the request (400): no thanks." in err
        assert err.count("no thanks") == 2  # where it was first seen, and in the warning
        assert "3 trials lost to infra" in out
        assert listed(place) == {"scored": 3, "lost": 3, "planned": 6}
        assert place.run(*words, "--fail-under", "compiles=-1")[0] == 3


def test_an_eval_of_which_all_is_lost_fails(tmp_path: Path) -> None:
    """Nothing scored is exit 1, whatever the threshold."""
    place = Place(tmp_path, ("one",))
    with serving(refuses="") as url:
        words = ["-m", "local/m", "--base-url", url, "--runs", "1", "--fail-under", "compiles=-1"]
        code, out, err = place.run(*words)
    assert code == 1
    assert "nothing is scored: 0 of 2 trials" in out
    assert "warning: 2 of 2 trials are lost" in err
    assert listed(place) == {"scored": 0, "lost": 2, "planned": 2}
