"""What a harness has started ends with it, even when nobody could tell it to."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandboxes.orphans import remove_orphans
from tests.fakes.processes import processes_naming

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
print((process._cage._start.folder / "scratch"), flush=True)
process.wait(None)
"""


def gone(token: str, within_s: float = 20.0) -> bool:
    """Whether nothing that holds `token` runs any more, soon."""
    deadline = time.monotonic() + within_s
    while processes_naming(token) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not processes_naming(token)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["KILL", "TERM"])
def test_nothing_outlives_the_harness(number: signal.Signals) -> None:
    """A grandchild in a process group of its own, and the scratch folder, are gone after kill -9."""
    token = f"liftbench-minder-{secrets.token_hex(8)}"
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, token], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    with harness.stdout:
        scratch = Path(harness.stdout.readline().strip())
    deadline = time.monotonic() + 20
    # The harness, the shell, and the tool.
    while len(processes_naming(token)) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(processes_naming(token)) >= 3 and scratch.is_dir()
    harness.send_signal(number)
    harness.wait(20)
    assert gone(token)
    deadline = time.monotonic() + 10
    while scratch.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not scratch.exists()


def test_the_next_start_ends_what_outlived_harness_and_minder(temporary: Path) -> None:
    """A build goes on when both are killed together; the next harness ends it, and removes its folder."""
    token = f"liftbench-minder-{secrets.token_hex(8)}"
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, token],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert harness.stdout is not None
    with harness.stdout:
        scratch = Path(harness.stdout.readline().strip())
    deadline = time.monotonic() + 20
    while len(processes_naming(token)) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in [*_children("reaper.py", harness.pid), harness.pid]:
        os.kill(pid, signal.SIGSTOP)  # neither may see the other's end
    for pid in [*_children("reaper.py", harness.pid), harness.pid]:
        os.kill(pid, signal.SIGKILL)
    harness.wait(20)
    assert processes_naming(token) and scratch.is_dir()
    assert remove_orphans(temporary) == [scratch.parent]
    assert gone(token)


def test_a_killed_minder_is_replaced() -> None:
    """Another one learns of all that still runs."""
    from sandboxes.reaper import Reaper

    token = f"liftbench-minder-{secrets.token_hex(8)}"
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(300)", token], start_new_session=True
    ) as watched:
        minder = Reaper()
        minder.watch(watched.pid, None, Path("/nonexistent/liftbench"))
        first = _children("reaper.py")
        for pid in first:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        minder.watch(1 << 30, None, Path("/nonexistent/liftbench"))
        assert _children("reaper.py") and not first & _children("reaper.py")
        assert minder._pipe is not None
        os.close(minder._pipe)  # as our end would
        assert watched.wait(20) == -signal.SIGKILL
    for pid in _children("reaper.py"):
        os.waitpid(pid, 0)


def test_containers_end_with_the_harness(tmp_path: Path) -> None:
    """The engine is asked to remove what still runs, again where it refused; what was forgotten is left."""
    from sandboxes.reaper import Reaper

    asked = []
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(tmp_path / "engine"))
        engine.listen()
        engine.settimeout(20)
        frozen, folder = tmp_path / "freezer.state", tmp_path / "folder"
        frozen.write_text("FROZEN")
        folder.mkdir()
        minder = Reaper()
        minder.watch_container("ended", tmp_path / "engine", folder)
        minder.watch_container("frozen", tmp_path / "engine", folder)
        minder.watch_container("frozen", tmp_path / "engine", folder, (frozen, "THAWED"))
        minder.forget("ended")
        assert minder._pipe is not None
        os.close(minder._pipe)  # as our end would
        for answer in (b"HTTP/1.0 500 Server Error\r\n\r\n", b"HTTP/1.0 204 No Content\r\n\r\n"):
            connection, _ = engine.accept()
            with connection:
                asked.append(connection.recv(4096).split(b"\r\n")[0])
                connection.sendall(answer)
        for pid in _children("reaper.py"):
            os.waitpid(pid, 0)
    assert asked == [b"DELETE /containers/frozen?force=1&v=1 HTTP/1.0"] * 2
    assert frozen.read_text() == "THAWED"
    assert not folder.exists()


def _children(name: str, of: int | None = None) -> set[int]:
    """Living children of a process (default: ours) whose command holds `name`."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # It ended.
        if parent == (of or os.getpid()) and name.encode() in command:
            found.add(int(entry.name))
    return found
