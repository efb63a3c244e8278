"""What a harness has started ends with it, after kill -9 too."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandboxes.orphans import remove_orphans
from sandboxes.reaper import Reaper, stat_of
from tests.fakes.processes import children, processes_naming
from tests.sandboxes.behaviours import gone, token

ROOT = Path(__file__).resolve().parents[2]

# A build whose tool leaves its process group, as ninja's children do, and outlives its parent.
HARNESS = """
import sys
from sandboxes.job import Job, Limits
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool
token = sys.argv[1]
script = "import os, time; os.setpgid(0, 0); print(1); time.sleep(300)"
shell = f'"{sys.executable}" -I -S -c "$1" {token} & wait'
job = Job(role="build", argv=["/bin/sh", "-c", shell, "sh", script], limits=Limits(wall_s=250.0))
process = SandboxPool(LocalBackend()).start(job)
print((process._tree._spec.folder / "scratch"), flush=True)
process.wait(None)
"""


def started_harness(word: str, **environment: str) -> tuple[subprocess.Popen[str], Path]:
    """A harness with a running build, and its scratch directory."""
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, word],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert harness.stdout is not None
    with harness.stdout:
        scratch = Path(harness.stdout.readline().strip())
    deadline = time.monotonic() + 20
    while len(processes_naming(word)) < 3 and time.monotonic() < deadline:  # harness, shell, and tool
        time.sleep(0.05)
    assert len(processes_naming(word)) >= 3 and scratch.is_dir()
    return harness, scratch


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["KILL", "TERM"])
def test_nothing_outlives_the_harness(number: signal.Signals) -> None:
    """A grandchild in its own process group and the scratch directory are gone."""
    word = token()
    harness, scratch = started_harness(word)
    harness.send_signal(number)
    harness.wait(20)
    assert gone(word)
    deadline = time.monotonic() + 10
    while scratch.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not scratch.exists()


def test_the_next_harness_cleans_up_after_both(temporary: Path) -> None:
    """When harness and reaper are killed together, the build goes on until the next harness ends it."""
    word = token()
    harness, scratch = started_harness(word, TMPDIR=str(temporary))
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that neither sees the other's end
        for pid in [*children("reaper.py", harness.pid), harness.pid]:
            os.kill(pid, number)
    harness.wait(20)
    assert processes_naming(word) and scratch.is_dir()
    assert remove_orphans(temporary) == [scratch.parent.name]
    assert gone(word)


def end(reaper: Reaper) -> None:
    """As our death does; returns when it has cleaned up."""
    os.close(reaper._pipe)  # type: ignore[arg-type]
    for pid in children("reaper.py"):
        os.waitpid(pid, 0)


def test_a_killed_reaper_is_replaced() -> None:
    """The next one receives all registrations."""
    sleep = [sys.executable, "-c", "import time; time.sleep(300)", token()]
    with subprocess.Popen(sleep, start_new_session=True) as watched:
        reaper = Reaper()
        reaper.watch(watched.pid, None, Path("/nonexistent/liftbench"))
        for pid in children("reaper.py"):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        reaper.watch(1 << 30, None, Path("/nonexistent/liftbench"))
        end(reaper)
        assert watched.wait(20) == -signal.SIGKILL


def test_containers_end_with_the_harness(tmp_path: Path) -> None:
    """The engine is asked again after a failure; containers that were unregistered are left."""
    asked = []
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(tmp_path / "engine"))
        engine.listen()
        engine.settimeout(20)
        folder = tmp_path / "folder"
        folder.mkdir()
        reaper = Reaper()
        reaper.watch_container("ended", tmp_path / "engine", folder)
        reaper.watch_container("running", tmp_path / "engine", folder)
        reaper.forget("ended")
        os.close(reaper._pipe)  # type: ignore[arg-type]  # as our death would
        for answer in (b"HTTP/1.0 500 Server Error\r\n\r\n", b"HTTP/1.0 204 No Content\r\n\r\n"):
            connection, _ = engine.accept()
            with connection:
                asked.append(connection.recv(4096).split(b"\r\n")[0])
                connection.sendall(answer)
        for pid in children("reaper.py"):
            os.waitpid(pid, 0)
    assert asked == [b"DELETE /containers/running?force=1&v=1 HTTP/1.0"] * 2
    assert not folder.exists()


def test_a_process_whose_name_is_no_text_is_seen() -> None:
    """A job chooses its name: any bytes."""
    program = (
        "import ctypes; ctypes.CDLL(None).prctl(15, b'\\xff\\xfe)', 0, 0, 0); print(1, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert stat_of(process.pid)[1] == str(os.getpid())
        process.kill()
