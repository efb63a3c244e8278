"""The sandbox seam: a Job starts, and a Process is what runs.

A Process dies with its whole process tree at kill() or at its deadline.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

from harness.errors import SandboxError

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


OWN_SIGNALS: Final = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
        signal.SIGPIPE,
        signal.SIGALRM,
        signal.SIGVTALRM,
        signal.SIGPROF,
    }
)
"""What a process gets for what it did itself: a second try would favor code that crashes now and then."""
_SHOWN: Final = 600


def raise_if_infra(facts: ExitFacts, doing: str) -> None:
    """Raise SandboxError where the end is ours (rules 1 and 2)."""
    if facts.status == "sandbox_error":
        raise SandboxError(f"the sandbox failed while {doing}: {facts.output.strip()[-_SHOWN:]}")
    starved_s = facts.starved_s
    if facts.status == "wall_timeout" and starved_s is not None and starved_s > facts.wall_s / 2:
        raise SandboxError(
            f"the time for {doing} was over after {facts.wall_s:.0f} s, and for {starved_s:.0f} s of it other"
            " processes of this machine had the cores: end them, or run fewer trials at once"
        )


def killed_from_outside(facts: ExitFacts) -> bool:
    """Whether it may have been killed from outside (rule 4): by the host for want of memory, or by hand."""
    return facts.status == "signal" and facts.signal not in OWN_SIGNALS


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


# --- what a backend implements --------------------------------------------------------------

STOP_S: Final = 10.0
"""Within which all threads of a tree must stand: a call that had 3 GB of memory filled took 0.8 s (0013)."""


class UnstoppableError(Exception):
    """A tree that does not stand still; caught in running.py, which ends it."""


@dataclass(frozen=True)
class TreeExit:
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


class ProcessTree(Protocol):
    """Holds one process tree, from before its first byte until after its last."""

    channel: socket.socket
    """Our end of a connected AF_UNIX SEQPACKET pair; at first inside.py talks over it."""
    caps_memory: bool
    """The kernel enforces the memory limit; otherwise running.py watches it."""
    caps_scratch: bool
    """The scratch directory is a file system of its own with a size."""

    def wait(self) -> TreeExit:
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

    def spawn(self, job: Job) -> ProcessTree:
        """A cage that fits `job`, whose argv and inputs come later. Raises SandboxError."""

    def close(self) -> None:
        """Let go of what it holds. Its cages are not touched."""
