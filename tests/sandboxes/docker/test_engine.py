"""Finding an engine, and saying why one cannot be used."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from harness.errors import SandboxError
from sandboxes.docker.container import ControlSocket
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
def test_no_permission(tmp_path: Path) -> None:
    """Who may not use the socket is told of the group, and what it means."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        (tmp_path / "s").chmod(0o600)
        os.seteuid(20_123)
        try:
            said = reason(f"unix://{tmp_path}/s")
        finally:
            os.seteuid(0)
    assert "group docker" in said and "powerful as root" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_other_users_are_refused() -> None:
    """By their credentials: root may open a container's socket, whatever its mode."""
    control = ControlSocket(20_123)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as intruder:
        intruder.connect(str(control.folder / "socket"))
        assert control.accept(20.0) is None
        assert intruder.recv(9) == b""
    assert (control.folder / "socket").is_socket()
    control.close()


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
