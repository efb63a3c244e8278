"""The socket by which a container's first program connects."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sandboxes.docker.container import ControlSocket


def test_one_connection_is_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Then the socket is gone. Its path may be longer than a socket's may be; close() may be called twice."""
    deep = tmp_path / ("long" * 30)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    control = ControlSocket(os.geteuid())
    assert control.accept(0.01) is None
    monkeypatch.chdir(control.folder)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as inside:
        inside.connect("socket")
        found = control.accept(20.0)
        assert found is not None
        channel, pid = found
        with channel:
            inside.send(b"hello")
            assert (channel.recv(9), pid) == (b"hello", os.getpid())
    assert list(control.folder.iterdir()) == []
    monkeypatch.undo()
    control.close()
    control.close()
    assert not control.folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_other_users_are_refused() -> None:
    """By their credentials: root may open any socket, whatever its mode."""
    control = ControlSocket(20_123)
    code = """
import socket, sys
tried = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
tried.connect(sys.argv[1])
print(tried.recv(9))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(control.folder / "socket")], stdout=subprocess.PIPE, text=True
    ) as intruder:
        assert control.accept(20.0) is None
        assert intruder.communicate()[0] == "b''\n"
    assert (control.folder / "socket").is_socket()
    control.close()
