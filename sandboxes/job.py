"""The sandbox seam: a Job starts, and a Process is what runs.

A Process dies with its whole process tree at kill() or at its deadline.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

IMAGES_FACT = "images"
"""In a sandbox's facts: one digest of all images that jobs run in; absent where there are none."""
RoleName = Literal["build", "run", "run_jit"]
Status = Literal[
    "ok",
    "nonzero",
    "signal",
    "oom",
    "wall_timeout",
    "cpu_timeout",
    "output_limit",
    "disk_limit",
    "gpu_fault",
    "sandbox_error",
]


@dataclass(frozen=True)
class Limits:
    """What a process may use. Sizes in bytes, times in seconds; None is unlimited."""

    wall_s: float
    """Frozen time excluded."""
    cpu_s: float | None = None
    memory_bytes: int | None = None
    """Beside the scratch directory, where that lies in memory."""
    file_bytes: int = 256 << 20
    """Largest single file."""
    output_bytes: int = 1 << 20
    """Kept of stdout and stderr together; 16 times that kills."""
    processes: int = 256
    scratch_bytes: int = 2 << 30
    """All of the scratch directory, where a backend can cap it."""
    scratch_files: int = 50_000
    """Inodes of the scratch directory, where a backend can cap them."""


@dataclass(frozen=True)
class Job:
    """One process to start in a sandbox."""

    role: RoleName
    argv: Sequence[str]
    """`{scratch}` in any word becomes the private, writable directory, `{channel}` the channel's number."""
    limits: Limits
    inputs: Mapping[str, Path] = field(default_factory=dict)
    """Name in the scratch directory -> file or directory outside; copied, so never written through."""
    readable: Sequence[Path] = ()
    """Directories outside that the process must be able to read (toolkit, torch)."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to a scrubbed environment; never the launcher's own."""
    device: str | None = None
    """GPU UUID or index; None for no GPU."""
    cpus: frozenset[int] | None = None
    """Cores the process is pinned to; None for all."""
    preload: tuple[str, ...] = ()
    """Modules that the interpreter imports before any byte of a student's is there: allows a warm start.

    argv is then `[python, "-I", "-S", script, ...]`, and the script runs in that interpreter.
    """
    site: tuple[Path, ...] = ()
    """Directories from which `preload` is imported."""


@dataclass(frozen=True)
class ExitFacts:
    """How a process ended, as seen from outside."""

    status: Status
    code: int | None
    """Exit code, or None when a signal ended it."""
    signal: int | None
    wall_s: float
    cpu_s: float | None
    peak_memory_bytes: int | None
    output: str
    """stdout and stderr, capped. Untrusted text."""
    starved_s: float | None = None
    """Seconds in which its tasks could have run and processes outside its control group had the cores; None
    where that was not watched."""


class Process(Protocol):
    """A running job."""

    channel: socket.socket
    """The judge's end of a connected AF_UNIX SEQPACKET pair."""

    def wait(self, timeout_s: float | None = None) -> ExitFacts | None:
        """The exit facts, or None if it still runs after timeout_s (None waits for the deadline)."""

    def kill(self) -> None:
        """End the whole process tree now."""

    def pause(self, paused: bool) -> None:
        """Freeze or thaw the whole process tree (used while another contender is timed)."""

    def collect(self, allow: Iterable[str], destination: Path) -> list[Path]:
        """Copy regular files matching the glob patterns from the scratch directory; links are refused."""

    def close(self) -> None:
        """Kill, release descriptors and remove the scratch directory. Safe to call twice."""


class Sandbox(Protocol):
    """Where jobs run."""

    name: str

    def facts(self) -> dict[str, str]:
        """What protects and what does not, for the record."""

    def start(self, job: Job) -> Process:
        """Start a process. Raises SandboxError when the backend itself fails."""

    def prepare(self, job: Job, count: int = 1) -> None:
        """Start ahead what `count` jobs like this one need, where that can be; returns at once."""

    def settle(self) -> None:
        """Return when nothing is being prepared any more."""

    def close(self) -> None:
        """End what was prepared. Running jobs are not touched."""
