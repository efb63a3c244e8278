"""The socket by which a container's first program connects."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sandboxes.docker.container import ControlSocket


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
