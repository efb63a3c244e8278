"""What a backend makes: something that holds one process tree, not yet given a job.

Until it is told what to run, a cage runs our own inside.py only.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from sandboxes.job import Job

STOP_S: Final = 10.0
"""Within which all threads of a tree must stand: a call that had 3 GB of memory filled took 0.8 s (0013)."""


class UnstoppableError(Exception):
    """A tree that does not stand still; caught in running.py, which ends it."""


@dataclass(frozen=True)
class Ended:
    """How a process tree ended, as the backend saw it."""

    code: int | None
    """Exit code; None when a signal ended it, or nobody knows."""
    signal: int | None = None
    oom: bool = False
    """The kernel killed something of it because it went over its own limit of memory."""
    peak_memory_bytes: int | None = None
    cpu_s: float | None = None
    problem: str | None = None
    """The backend failed; code and signal then say nothing."""


@dataclass(frozen=True)
class Usage:
    """What a process tree uses now; None where nobody knows."""

    memory_bytes: int | None = None
    cpu_s: float | None = None


class Cage(Protocol):
    """Holds one process tree, from before its first byte until after its last."""

    channel: socket.socket
    """Our end of a connected AF_UNIX SEQPACKET pair; at first inside.py talks over it."""
    caps_memory: bool
    """The kernel enforces the memory limit; otherwise running.py watches it."""
    caps_scratch: bool
    """The scratch directory is a file system of its own with a size."""

    def wait(self) -> Ended:
        """Block until all of it has ended. Called once."""

    def kill(self) -> None:
        """End the whole tree now. Safe to call at any time, also twice."""

    def freeze(self, frozen: bool) -> None:
        """Stop or continue the whole tree; when it returns, all stand still, system calls included.

        Raises UnstoppableError where that cannot be reached.
        """

    def usage(self) -> Usage:
        """What the tree uses now."""

    def members(self) -> list[int]:
        """Its processes now, as far as we can see them."""

    def words(self) -> str:
        """What was printed before it was ready: for an error message."""

    def release(self) -> None:
        """Give back all that it used, after its end. Safe to call twice."""


class ImageFiles(Protocol):
    """The files of the image that jobs see instead of this machine's."""

    def description(self) -> bytes:
        """What it says of its toolchain (harness/builder/description.py). Raises SandboxError."""

    def view(self, cache: Path) -> Path:
        """A directory here with those of its files that we read ourselves. Raises SandboxError."""


class Backend(Protocol):
    """Makes cages."""

    name: str
    python: Path
    """The interpreter that jobs use, as they see it."""

    @property
    def image(self) -> ImageFiles | None:
        """None where jobs see files of this machine."""

    def facts(self) -> dict[str, str]:
        """What protects and what does not, for the record."""

    def cage(self, job: Job) -> Cage:
        """A cage that fits `job`, whose argv and inputs come later. Raises SandboxError."""

    def close(self) -> None:
        """Let go of what it holds. Its cages are not touched."""
