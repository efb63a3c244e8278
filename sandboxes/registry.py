"""Chooses a sandbox by name, after it has shown that it keeps its promises.

A sandbox whose probe fails is never handed out; `local` only when it was spelled out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness import __version__
from harness.errors import SandboxError, UsageError
from sandboxes.job import Backend
from sandboxes.pool import SandboxPool
from sandboxes.selftest import ProbeReport, probe

LOCAL_WARNING = (
    "sandbox `local` does not isolate: projects can use the network and read what you can read. "
    "Use it for projects you trust; its results are kept off leaderboards."
)
_ADVICE = (
    "apt-get install bubblewrap (or docker.io, then `make image`); to run without isolation: --sandbox local"
)
# Files that engines leave in their containers, and what Kubernetes tells its pods.
_IN_CONTAINER = ("/.dockerenv", "/run/.containerenv")
_IN_POD = "KUBERNETES_SERVICE_HOST"


def _docker() -> Backend:
    try:
        from sandboxes.docker.backend import DockerBackend
    except ModuleNotFoundError as error:
        raise SandboxError(f"the Python package {error.name} is missing: pip install docker") from error
    return DockerBackend.open(os.environ, __version__)


def _bubblewrap() -> Backend:
    from sandboxes.bubblewrap import BubblewrapBackend

    backend = BubblewrapBackend()
    return _available(backend, backend.unavailable())


def _landlock() -> Backend:
    from sandboxes.landlock import LandlockBackend

    backend = LandlockBackend()
    return _available(backend, backend.unavailable())


def _local() -> Backend:
    from sandboxes.local import LocalBackend

    return LocalBackend()


def _available(backend: Backend, reason: str | None) -> Backend:
    if reason is not None:
        raise SandboxError(reason)
    return backend


Make = Callable[[], Backend]
BACKENDS: dict[str, Make] = {
    "docker": _docker,
    "bubblewrap": _bubblewrap,
    "landlock": _landlock,
    "local": _local,
}
"""Strongest first. Each raises SandboxError with the reason where it cannot be had."""


@dataclass(frozen=True)
class Choice:
    """The sandbox that is used."""

    sandbox: SandboxPool
    why: str
    """Why this one, and why not another that was asked for. For people."""
    report: ProbeReport | None
    """None for `local`, which promises next to nothing."""


def automatic(environment: Mapping[str, str], root: Path = Path("/")) -> tuple[str, ...]:
    """What `auto` tries, in this order; never `local`.

    Landlock alone leaves processes and sockets of the machine visible, so it counts only where a container
    that is thrown away stands around us.
    """
    inside = any((root / file.lstrip("/")).exists() for file in _IN_CONTAINER) or _IN_POD in environment
    return ("docker", "bubblewrap", "landlock") if inside else ("docker", "bubblewrap")


def open_sandbox(name: str) -> SandboxPool:
    """The sandbox of that name, not probed. Raises SandboxError when it cannot be had, UsageError."""
    if name not in BACKENDS:
        raise UsageError(f"{name!r} is no sandbox: there are auto, {', '.join(BACKENDS)}")
    return SandboxPool(BACKENDS[name]())


def choose_sandbox(
    wanted: str, backends: Mapping[str, Make] = BACKENDS, environment: Mapping[str, str] = os.environ
) -> Choice:
    """The first of the comma-separated names that works and keeps its promises.

    Raises UsageError when none does, with every reason.
    """
    words = [word.strip() for word in wanted.split(",")]
    names = [(name, word != "auto") for word in words for name in _names(word, environment)]
    refused: list[str] = []
    told: list[str] = []
    for name, asked in names:
        try:
            return _tried(name, backends[name], refused if name == "local" else told)
        except SandboxError as error:
            refused.append(f"{name}: {error}")
            # What `auto` did not find matters only where nothing that isolates is left; `doctor` lists all.
            if asked or isinstance(error, _BrokenPromise):
                told.append(refused[-1])
    reasons = "".join(f"\n  {reason}" for reason in refused)
    raise UsageError(f"no sandbox to use{reasons}\n{_ADVICE}")


def _names(word: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    if word == "auto":
        return automatic(environment)
    if word not in BACKENDS:
        raise UsageError(f"{word!r} is no sandbox: there are auto, {', '.join(BACKENDS)}")
    return (word,)


class _BrokenPromise(SandboxError):
    """It is there, and does not hold."""


def _tried(name: str, make: Make, others: list[str]) -> Choice:
    """`others`: why it is none of those tried before. Raises SandboxError for one absent, or broken."""
    sandbox = SandboxPool(make())
    if name == "local":
        return Choice(sandbox, "; ".join(others) or "asked for by name", None)
    report = probe(sandbox, str(sandbox.python))
    if report.broken:
        sandbox.close()
        broken = "; ".join(f"{one.name} ({one.detail})" for one in report.broken)
        raise _BrokenPromise(f"breaks a promise, so it is not used: {broken}")
    kept = sum(one.promised for one in report.promises)
    why = f"keeps its {kept} promises ({report.seconds:.1f} s)"
    return Choice(sandbox, "; ".join([why, *others]), report)
