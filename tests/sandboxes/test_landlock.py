"""The landlock sandbox, with real processes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes.inside import landlock_version
from sandboxes.landlock import LandlockBackend
from tests.sandboxes.behaviours import Behaviours, HostFiles, Starter, end_of

ROOT = Path(__file__).resolve().parents[2]
_REASON = LandlockBackend().unavailable()
pytestmark = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))


@pytest.fixture
def backend() -> LandlockBackend:
    """The backend under test."""
    return LandlockBackend()


class TestLandlock(HostFiles, Behaviours):
    """What all backends do."""


def test_nothing_outside_can_be_read_or_written(start: Starter, tmp_path: Path) -> None:
    """Neither accounts, nor our files, source and tasks, nor the list of processes, nor shared memory."""
    tmp_path.chmod(0o777)
    (tmp_path / "secret").write_text("planted")
    code = """
import json, os, sys
def tried(path):
    reached = []
    for act in (lambda: os.listdir(path), lambda: open(path, "rb").read(1), lambda: open(path, "r+b"),
                lambda: open(path + "/planted", "w"), lambda: os.truncate(path, 0), lambda: os.unlink(path)):
        try:
            act()
            reached.append(path)
        except OSError:
            pass
    return reached
print(json.dumps(sum((tried(path) for path in sys.argv[1:]), [])))
"""
    paths = ["/etc/passwd", "/etc/shadow", "/root", "/home", "/", "/proc", "/proc/1", f"/proc/{os.getpid()}"]
    paths += [f"/proc/{os.getpid()}/cmdline", "/dev", "/dev/shm", "/dev/kmsg", "/sys/fs/cgroup", "/var/tmp"]
    paths += [str(path) for path in (tmp_path, tmp_path / "secret", ROOT, ROOT / "tasks", ROOT / "harness")]
    assert json.loads(end_of(start(code, *paths)).output) == []
    assert (tmp_path / "secret").read_text() == "planted"


def test_there_is_no_socket(start: Starter, tmp_path: Path) -> None:
    """No family of sockets: a unix socket of the host that lies open would not be seen by Landlock."""
    tmp_path.chmod(0o777)
    code = """
import socket, sys
for make in (lambda: socket.socket(socket.AF_UNIX), lambda: socket.socket(socket.AF_INET), socket.socketpair):
    try:
        make(); print("MADE")
    except OSError:
        print("refused")
"""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "open"))
        listener.listen()
        assert end_of(start(code)).output.split() == ["refused"] * 3


@pytest.mark.skipif(landlock_version() < 6, reason="signals are scoped from Landlock ABI 6 on")
def test_no_signals_to_others(start: Starter) -> None:
    """A process of the same user outside cannot be signalled."""
    code = """
import os, sys
try:
    os.kill(int(sys.argv[1]), 0); print("REACHED")
except OSError:
    print("refused")
"""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert end_of(start(code, str(other.pid))).output.strip() == "refused"


def test_programs_of_a_build_work(start: Starter) -> None:
    """A compiler with its many processes, and what it made, run under the rules."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ here: apt-get install g++")
    script = (
        "set -e; cd $HOME; echo 'int main() { return 7; }' > a.cpp; g++ -pipe -O1 a.cpp -o a;"
        " ./a || echo code $?; echo x > /dev/null; cat /proc/self/stat > /dev/null || echo no proc"
    )
    facts = end_of(start("", role="build", argv=["/bin/sh", "-c", script], file_bytes=64 << 20))
    assert facts.output.split("\n")[0] == "code 7", facts.output


def test_facts(backend: LandlockBackend) -> None:
    """The record says which version of Landlock there is, and what it leaves open."""
    facts = backend.facts()
    assert facts["landlock"] == f"ABI {landlock_version()}"
    assert "visible" in facts["files"]
