"""The sandbox interface: Job, Process and Sandbox for callers, ProcessTree and Backend for backends."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

from harness.errors import SandboxError

IMAGES_FACT = "images"
"""Key in a sandbox's facts: one digest of all images that jobs run in; absent without images."""
STOP_S: Final = 10.0
"""Time limit for freezing all threads of a tree; a call that filled 3 GB of memory took 0.8 s."""
OWN_SIGNALS: Final = frozenset(
    signal.Signals[f"SIG{name}"]
    for name in "SEGV BUS FPE ILL ABRT TRAP SYS PIPE ALRM VTALRM PROF".split()  # noqa: SIM905
)
"""Signals that a process causes itself. Not retried: that would favor code that crashes sometimes."""
_SHOWN_CHARACTERS: Final = 600
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
    """Limits of a process tree. Sizes in bytes, times in seconds; None is unlimited."""

    wall_s: float
    """Frozen time excluded."""
    cpu_s: float | None = None
    memory_bytes: int | None = None
    """The scratch directory is not included, even where it lies in memory."""
    file_bytes: int = 256 << 20
    output_bytes: int = 1 << 20
    """Kept of stdout and stderr together; a job that writes 16 times as much is killed."""
    processes: int = 256
    scratch_bytes: int = 2 << 30
    scratch_files: int = 50_000


@dataclass(frozen=True)
class Job:
    role: RoleName
    argv: Sequence[str]
    """`{scratch}` in any word becomes the private, writable directory, `{channel}` the channel's number."""
    limits: Limits
    inputs: Mapping[str, Path] = field(default_factory=dict)
    """Name in the scratch directory -> file or directory outside, which is copied."""
    readable: Sequence[Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to a scrubbed environment."""
    device: str | None = None
    cpus: frozenset[int] | None = None
    preload: tuple[str, ...] = ()
    """Modules to import before any student code is present: allows a warm start.

    argv is then `[python, "-I", "-S", script, ...]`, and the script runs in that interpreter.
    """
    site: tuple[Path, ...] = ()


@dataclass(frozen=True)
class ExitFacts:
    status: Status
    code: int | None
    signal: int | None
    wall_s: float
    cpu_s: float | None
    peak_memory_bytes: int | None
    output: str
    """stdout and stderr, truncated. Untrusted text."""
    starved_s: float | None = None
    """Time in which its tasks were runnable but other control groups held the cores; None if unknown."""


# Attribution of a process's end. Nothing that a student's code controls (its output, exit code, or killing
# itself) makes a failure one of the infrastructure:
# 1. `sandbox_error` is infrastructure; only the sandbox sets it.
# 2. So is a build that timed out while other control groups held the cores for over half of its limit.
# 3. So is a build that failed otherwise, where a control build without student files fails too.
# 4. A death by a signal that may have come from outside is repeated once, in a fresh process.
# 5. Everything else is the student's, a second such death too.


def raise_if_infra(facts: ExitFacts, doing: str) -> None:
    """Raise SandboxError for an infrastructure failure (rules 1 and 2)."""
    if facts.status == "sandbox_error":
        raise SandboxError(f"the sandbox failed while {doing}: {facts.output.strip()[-_SHOWN_CHARACTERS:]}")
    starved_s = facts.starved_s
    if facts.status == "wall_timeout" and starved_s is not None and starved_s > facts.wall_s / 2:
        raise SandboxError(
            f"the time for {doing} was over after {facts.wall_s:.0f} s, and for {starved_s:.0f} s of it other"
            " processes of this machine had the cores: end them, or run fewer trials at once"
        )


def killed_from_outside(facts: ExitFacts) -> bool:
    return facts.status == "signal" and facts.signal not in OWN_SIGNALS


class Process(Protocol):
    channel: socket.socket
    """The judge's end of a connected AF_UNIX SEQPACKET pair."""

    def wait(self, timeout_s: float | None = None) -> ExitFacts | None:
        """The exit facts, or None if it still runs after timeout_s (None waits for the deadline)."""

    def kill(self) -> None:
        """Kill the whole process tree."""

    def pause(self, paused: bool) -> float:
        """Freeze or thaw the whole process tree, of a role other than build; when (time.monotonic) it was."""

    def collect(self, allow: Iterable[str], destination: Path) -> list[Path]:
        """Copy regular files that match the glob patterns out of the scratch directory; links are refused."""

    def close(self) -> None:
        """Kill, release descriptors and remove the scratch directory. Safe to call twice."""


class Sandbox(Protocol):
    name: str

    def facts(self) -> dict[str, str]:
        """What is isolated and what is not, for the record."""

    def start(self, job: Job) -> Process:
        """Start a process. Raises SandboxError when the backend itself fails."""

    def prepare(self, job: Job) -> None:
        """Start a warm process for a job of this shape in the background, unless there is one."""

    def settle(self) -> None:
        """Wait until no warm process is being started."""

    def close(self) -> None:
        """End warm processes. Running jobs are not affected."""


class UnstoppableError(Exception):
    """A process tree could not be frozen within STOP_S."""


@dataclass(frozen=True)
class TreeExit:
    code: int | None
    signal: int | None = None
    oom: bool = False
    peak_memory_bytes: int | None = None
    cpu_s: float | None = None
    problem: str | None = None
    """The backend failed; code and signal are then meaningless."""


@dataclass(frozen=True)
class Usage:
    memory_bytes: int | None = None
    cpu_s: float | None = None


class ProcessTree(Protocol):
    """One process tree in its restrictions. Runs only inside.py until a job is sent to it."""

    channel: socket.socket
    """Our end of a connected AF_UNIX SEQPACKET pair; inside.py is the first to use the other end."""
    caps_memory: bool
    """The kernel enforces the memory limit; otherwise the supervisor polls it."""
    caps_scratch: bool
    """The scratch directory is a file system of its own with a size limit."""

    def wait(self) -> TreeExit:
        """Block until the whole tree has ended. Called once."""

    def kill(self) -> None:
        """Kill the whole tree. Safe to call at any time, also twice."""

    def freeze(self, frozen: bool) -> float | None:
        """Stop or continue the whole tree, including system calls in progress, before returning.

        When (time.monotonic) all of it had stopped. Raises UnstoppableError.
        """

    def usage(self) -> Usage:
        """Current usage."""

    def members(self) -> list[int]:
        """Visible process ids."""

    def startup_output(self) -> str:
        """Output from before the tree was ready, for error messages."""

    def release(self) -> None:
        """Free all resources after the end. Safe to call twice."""


class ImageFiles(Protocol):
    """The files of a container image that jobs see instead of this machine's."""

    def description(self) -> bytes:
        """The image's JSON description of its toolchain. Raises SandboxError."""

    def view(self, cache: Path) -> Path:
        """A local directory with copies of the files that the harness reads. Raises SandboxError."""


class Backend(Protocol):
    name: str
    python: Path
    """The interpreter that jobs use, by its path inside the sandbox."""

    @property
    def image(self) -> ImageFiles | None:
        """None where jobs see files of this machine."""

    def facts(self) -> dict[str, str]:
        """What is isolated and what is not, for the record."""

    def spawn(self, job: Job) -> ProcessTree:
        """A tree with the restrictions of `job`; argv and inputs are sent later. Raises SandboxError."""

    def close(self) -> None:
        """Release shared resources. Running trees are not affected."""
