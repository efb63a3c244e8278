"""The way by which a container's first program reaches us: a socket in a folder that is mounted into it.

Who is let in has the user id that was given to the container; afterwards there is no socket.
"""

from __future__ import annotations

import os
import socket
import struct
import tempfile
from pathlib import Path
from typing import Final

from harness.errors import SandboxError
from sandboxes.orphans import owned_prefix
from sandboxes.process import remove_tree

PLACE: Final = "/liftbench-channel"
"""Where the container sees the folder."""
SOCKET: Final = f"{PLACE}/socket"
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred, unix(7)


class Door:
    """Listens from its beginning on."""

    def __init__(self, uid: int) -> None:
        """For the user `uid`. Raises SandboxError."""
        self._uid = uid
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=owned_prefix("channel")))
        except OSError as error:
            self._listener.close()
            raise SandboxError(f"no folder for a container's channel: {error}; is the disk full?") from error
        try:
            self._listen()
        except OSError as error:
            self.close()
            raise SandboxError(f"no channel for a container in {self.folder}: {error}") from error

    def _listen(self) -> None:
        self.folder.chmod(0o711)
        directory = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # A socket's path has 107 characters at most; that of a temporary folder may have more.
            self._listener.bind(f"/proc/self/fd/{directory}/socket")
        finally:
            os.close(directory)
        socket_file = self.folder / "socket"
        socket_file.chmod(0o600)
        os.chown(socket_file, self._uid, -1)
        self._listener.listen(1)

    def let_in(self, timeout_s: float) -> tuple[socket.socket, int] | None:
        """The connection and the process id at its other end; None if nobody came in time."""
        self._listener.settimeout(timeout_s)
        try:
            channel, _ = self._listener.accept()
        except TimeoutError:
            return None
        pid, uid, _ = _CREDENTIALS.unpack(
            channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if uid != self._uid:  # a user of this machine who guessed the path
            channel.close()
            return None
        channel.settimeout(None)
        self._listener.close()
        (self.folder / "socket").unlink()
        return channel, pid

    def close(self) -> None:
        """Remove the folder. Safe to call twice."""
        self._listener.close()
        remove_tree(self.folder)
