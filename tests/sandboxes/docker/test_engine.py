"""Finding an engine, and saying why one cannot be used."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import SandboxError
from sandboxes.docker.engine import DockerEngine, explained, refusal

GOOD: dict[str, Any] = {
    "KernelVersion": os.uname().release,
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=default", "name=cgroupns"],
    "MemoryLimit": True,
    "PidsLimit": True,
}


def reason(address: str) -> str:
    """Why there is no engine."""
    with pytest.raises(SandboxError) as error:
        DockerEngine.connect({"DOCKER_HOST": address})
    return str(error.value)


def test_no_engine(tmp_path: Path) -> None:
    """A remote one is refused; the message names the path, the package and the variable."""
    said = reason("tcp://10.0.0.1:2375")
    assert "tcp://10.0.0.1:2375" in said and "--sandbox bubblewrap" in said
    said = reason(f"unix://{tmp_path}/none.sock")
    assert f"{tmp_path}/none.sock" in said and "docker.io" in said and "DOCKER_HOST" in said
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
    assert "does not answer" in reason(f"unix://{tmp_path}/s")


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_no_permission() -> None:
    """Who may not use the socket is told of the group, and what it means."""
    code = """
import os, socket, sys, tempfile
sys.path[:0] = sys.argv[1:]
from sandboxes.docker.engine import DockerEngine
with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as listener:
    os.chmod(place, 0o711)
    listener.bind(place + "/s")
    listener.listen()
    os.chmod(place + "/s", 0o660)
    if os.fork() == 0:
        os.setgroups([])
        os.setresgid(20123, 20123, 20123)
        os.setresuid(20123, 20123, 20123)
        try:
            DockerEngine.connect({"DOCKER_HOST": "unix://" + place + "/s"})
        except Exception as error:
            print(error, flush=True)
        os._exit(0)
    os.wait()
"""
    paths = [str(Path(__file__).resolve().parents[3]), *(p for p in sys.path if p.endswith("site-packages"))]
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)
    assert "group docker" in done.stdout and "powerful as root" in done.stdout


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"KernelVersion": "6.6.12-linuxkit"}, "another kernel"),
        ({"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}, "rootless"),
        ({"SecurityOptions": ["name=seccomp,profile=default", "name=userns"]}, "userns-remap"),
        ({"SecurityOptions": None}, "no seccomp"),
        ({"MemoryLimit": False}, "cannot limit memory"),
    ],
)
def test_engines_that_cannot_keep_our_promises(change: dict[str, Any], words: str) -> None:
    """Each is refused in words that say what is missing."""
    assert refusal(GOOD) is None
    said = refusal(GOOD | change)
    assert said is not None and words in said


def test_advice() -> None:
    """A full disk is said with what makes room; what we do not know is said as it is."""
    assert "docker system prune" in explained(OSError("write /x: no space left on device"))
    assert explained(OSError("something\n else")) == "something else"


@pytest.mark.docker
def test_the_engine_of_this_machine(engine: DockerEngine) -> None:
    """Its facts name a version and its seccomp."""
    facts = engine.facts()
    assert facts["engine"].startswith("docker ")
    assert "seccomp" in facts["engine_security"]
