"""Chooses a sandbox by name, after its self-test has passed.

A sandbox that fails its self-test is never returned; `local` only when it was named explicitly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness import __version__
from harness.errors import SandboxError, UsageError
from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.job import Backend
from sandboxes.landlock import LandlockBackend
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool
from sandboxes.selftest import SelfTestReport, run_self_test

LOCAL_WARNING = (
    "sandbox `local` does not isolate: projects can use the network and read what you can read. "
    "Use it for projects you trust; its results are kept off leaderboards."
)
_ADVICE = (
    "apt-get install bubblewrap (or docker.io, then `make image`); to run without isolation: --sandbox local"
)
# Files that engines create in their containers, and a variable that Kubernetes sets in its pods.
_IN_CONTAINER = ("/.dockerenv", "/run/.containerenv")
_IN_POD = "KUBERNETES_SERVICE_HOST"


def _docker() -> Backend:
    # Inside the function: importing the docker SDK takes 0.2 s.
    from sandboxes.docker.backend import DockerBackend

    return DockerBackend.open(os.environ, __version__)


def _available(backend: BubblewrapBackend | LandlockBackend) -> Backend:
    reason = backend.unavailable()
    if reason is not None:
        raise SandboxError(reason)
    return backend


Make = Callable[[], Backend]
BACKENDS: dict[str, Make] = {
    "docker": _docker,
    "bubblewrap": lambda: _available(BubblewrapBackend()),
    "landlock": lambda: _available(LandlockBackend()),
    "local": LocalBackend,
}
"""Strongest first. Each raises SandboxError with the reason where it is unavailable."""


@dataclass(frozen=True)
class Choice:
    """The sandbox that is used."""

    sandbox: SandboxPool
    why: str
    """Why this one and not another that was requested, for people."""
    report: SelfTestReport | None
    """None for `local`."""


def automatic(environment: Mapping[str, str], root: Path = Path("/")) -> tuple[str, ...]:
    """What `auto` tries, in order; never `local`.

    Landlock leaves the machine's processes and sockets visible, so it is tried only in a container.
    """
    inside = any((root / file.lstrip("/")).exists() for file in _IN_CONTAINER) or _IN_POD in environment
    return ("docker", "bubblewrap", "landlock") if inside else ("docker", "bubblewrap")


def open_sandbox(name: str) -> SandboxPool:
    """The sandbox of that name, without a self-test. Raises SandboxError, UsageError."""
    if name not in BACKENDS:
        raise _unknown(name)
    return SandboxPool(BACKENDS[name]())


def _unknown(name: str) -> UsageError:
    return UsageError(f"{name!r} is no sandbox: there are auto, {', '.join(BACKENDS)}")


def choose_sandbox(
    wanted: str, backends: Mapping[str, Make] = BACKENDS, environment: Mapping[str, str] = os.environ
) -> Choice:
    """The first of the comma-separated names that is available and passes its self-test.

    Raises UsageError with every reason when none does.
    """
    words = [word.strip() for word in wanted.split(",")]
    names = [(name, word != "auto") for word in words for name in _names(word, environment)]
    refused: list[str] = []
    reported: list[str] = []
    for name, requested in names:
        try:
            return _tested(name, backends[name], refused if name == "local" else reported)
        except SandboxError as error:
            refused.append(f"{name}: {error}")
            # What `auto` does not find matters only when nothing that isolates is left; `doctor` lists all.
            if requested or isinstance(error, _FailedSelfTest):
                reported.append(refused[-1])
    reasons = "".join(f"\n  {reason}" for reason in refused)
    raise UsageError(f"no sandbox to use{reasons}\n{_ADVICE}")


def _names(word: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    if word == "auto":
        return automatic(environment)
    if word not in BACKENDS:
        raise _unknown(word)
    return (word,)


class _FailedSelfTest(SandboxError):
    """The sandbox is available but does not isolate as promised."""


def _tested(name: str, make: Make, others: list[str]) -> Choice:
    """`others`: why the sandboxes before it are not used. Raises SandboxError."""
    sandbox = SandboxPool(make())
    if name == "local":
        return Choice(sandbox, "; ".join(others) or "asked for by name", None)
    report = run_self_test(sandbox, str(sandbox.python))
    if report.broken:
        sandbox.close()
        broken = "; ".join(f"{one.name} ({one.detail})" for one in report.broken)
        raise _FailedSelfTest(f"breaks a promise, so it is not used: {broken}")
    kept = sum(one.promised for one in report.promises)
    why = f"keeps its {kept} promises ({report.seconds:.1f} s)"
    return Choice(sandbox, "; ".join([why, *others]), report)
