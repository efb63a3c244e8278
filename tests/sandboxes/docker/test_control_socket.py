"""Who comes in by the channel's socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes.docker.container import ControlSocket


@pytest.fixture
def door() -> Iterator[ControlSocket]:
    """A door for our own user."""
    made = ControlSocket(os.geteuid())
    yield made
    made.close()


def test_one_is_let_in(door: ControlSocket) -> None:
    """The first of the right user gets the channel; then there is no socket any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as inside:
        inside.connect(str(door.folder / "socket"))
        found = door.accept(20.0)
        assert found is not None
        channel, pid = found
        with channel:
            inside.send(b"hello")
            assert (channel.recv(9), pid) == (b"hello", os.getpid())
    assert list(door.folder.iterdir()) == []


def test_nobody_comes(door: ControlSocket) -> None:
    """The caller looks whether the container still lives, and asks again."""
    assert door.accept(0.01) is None


def test_its_folder_goes(door: ControlSocket) -> None:
    """close() may be called twice."""
    door.close()
    door.close()
    assert not door.folder.exists()


def test_a_long_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A temporary directory whose path is longer than a socket's may be is no obstacle."""
    deep = tmp_path / ("long" * 30)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    door = ControlSocket(os.geteuid())
    assert (door.folder / "socket").is_socket()
    door.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_others_are_not_let_in() -> None:
    """A process of another user that reaches the socket is hung up on."""
    door = ControlSocket(20_123)
    code = """
import os, socket, sys
tried = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
tried.connect(sys.argv[1])
print(tried.recv(9))
"""
    # Root may open any socket: the check is not that of the file's mode.
    with subprocess.Popen(
        [sys.executable, "-c", code, str(door.folder / "socket")], stdout=subprocess.PIPE, text=True
    ) as intruder:
        assert door.accept(20.0) is None
        assert intruder.communicate()[0] == "b''\n"
    assert (door.folder / "socket").is_socket()
    door.close()
