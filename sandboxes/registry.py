"""Chooses a sandbox by name, after its self-test has passed.

A sandbox that fails its self-test is never returned; `local` only when it was named explicitly.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness import __version__
from harness.errors import SandboxError, UsageError
from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.job import Backend, ExitFacts, Job, Limits, Sandbox
from sandboxes.landlock import LandlockBackend
from sandboxes.local import LocalBackend
from sandboxes.orphans import owned_folder
from sandboxes.pool import SandboxPool
from sandboxes.selftest_job import ATTEMPTS

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


Make = Callable[[], Backend]
BACKENDS: dict[str, Make] = {
    "docker": _docker,
    "bubblewrap": BubblewrapBackend,
    "landlock": LandlockBackend,
    "local": LocalBackend,
}
"""Strongest first. Each raises SandboxError with the reason where it is unavailable."""


@dataclass(frozen=True)
class Choice:
    sandbox: SandboxPool
    why: str


def automatic(environment: Mapping[str, str], root: Path = Path("/")) -> tuple[str, ...]:
    """What `auto` tries, in order; never `local`.

    Landlock leaves the machine's processes and sockets visible, so it is tried only in a container.
    """
    inside = any((root / file.lstrip("/")).exists() for file in _IN_CONTAINER) or _IN_POD in environment
    return ("docker", "bubblewrap", "landlock") if inside else ("docker", "bubblewrap")


def open_sandbox(name: str) -> SandboxPool:
    return SandboxPool(BACKENDS[_known(name)]())


def _known(name: str) -> str:
    if name not in BACKENDS:
        raise UsageError(f"{name!r} is no sandbox: there are auto, {', '.join(BACKENDS)}")
    return name


def choose_sandbox(
    wanted: str, backends: Mapping[str, Make] = BACKENDS, environment: Mapping[str, str] = os.environ
) -> Choice:
    """The first of the comma-separated names that is available and passes its self-test.

    Raises UsageError with every reason when none does.
    """
    words = [word.strip() for word in wanted.split(",")]
    names = [
        (name, word != "auto")
        for word in words
        for name in (automatic(environment) if word == "auto" else (_known(word),))
    ]
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


class _FailedSelfTest(SandboxError):
    """The sandbox is available but does not isolate as promised."""


def _tested(name: str, make: Make, others: list[str]) -> Choice:
    """`others`: why the sandboxes before it are not used. Raises SandboxError."""
    sandbox = SandboxPool(make())
    if name == "local":
        return Choice(sandbox, "; ".join(others) or "asked for by name")
    report = run_self_test(sandbox, str(sandbox.python))
    if report.broken:
        sandbox.close()
        broken = "; ".join(f"{one.name} ({one.detail})" for one in report.broken)
        raise _FailedSelfTest(f"breaks a promise, so it is not used: {broken}")
    kept = sum(one.promised for one in report.promises)
    why = f"keeps its {kept} promises ({report.seconds:.1f} s)"
    return Choice(sandbox, "; ".join([why, *others]))


_JOB: Final = Path(__file__).with_name("selftest_job.py")
_WALL_S: Final = 30.0
_PROCESSES: Final = 16
_SCRATCH_BYTES: Final = 16 << 20
# Two dozen children must fit: the watchdog counts the 10 MB that they share for each of them.
_MEMORY_BYTES: Final = 384 << 20

PROMISES: Final[dict[str, str]] = {
    "files": "files outside cannot be read",
    "environment": "no environment holds your keys",
    "writing": "nothing outside scratch can be written",
    "network": "no network, not even to this machine",
    "abstract sockets": "abstract unix sockets of this machine cannot be reached",
    "socket families": "no vsock and no kernel cryptography sockets",
    "processes": "processes outside cannot be signalled",
    "namespaces": "no user namespaces",
    "mounts": "nothing can be mounted",
    "io_uring": "io_uring is closed",
    "keyrings": "kernel key rings are closed",
    "tracing": "ptrace is closed",
    "privileges": "not root, no capabilities, no new privileges",
    "descriptors": "no descriptor of ours is inherited",
    "process limit": "processes are limited",
    "scratch limit": "bytes in scratch are limited",
    "memory limit": "memory is limited, for all processes together",
}
"""What is attempted, in order, as shown to users."""

_ALL: Final = frozenset(PROMISES)
_PROMISED: Final[dict[str, frozenset[str]]] = {
    "docker": _ALL,
    "bubblewrap": _ALL,
    # The scratch directory is on an ordinary file system: only the size of a file can be limited.
    "landlock": _ALL - {"scratch limit"},
    # Other promises may hold by chance.
    "local": frozenset(("descriptors", "memory limit")),
}


def promised_by(backend: str, *, root: bool) -> frozenset[str]:
    """The promises of a backend where liftbench runs as `root`, or not; an unknown one promises all."""
    promised = _PROMISED.get(backend, _ALL)
    # RLIMIT_NPROC counts by user, and without a user namespace the job's user is ours.
    return promised if root or backend != "landlock" else promised - {"process limit"}


@dataclass(frozen=True)
class Attempt:
    name: str
    promised: bool
    held: bool
    detail: str


@dataclass(frozen=True)
class SelfTestReport:
    promises: tuple[Attempt, ...]
    seconds: float

    @property
    def broken(self) -> tuple[Attempt, ...]:
        """Promises that the backend makes and does not keep: the sandbox must not be used."""
        return tuple(one for one in self.promises if one.promised and not one.held)


def run_self_test(sandbox: Sandbox, python: str) -> SelfTestReport:
    """Attempt every promise in one job. `python`: the interpreter by its path inside the sandbox.

    Raises SandboxError when the job cannot be started.
    """
    began = time.monotonic()
    with _targets() as (spec, evidence):
        process = sandbox.start(
            Job(
                role="run",
                argv=[python, "-I", "-S", "{scratch}/selftest_job.py", json.dumps(spec), "{channel}"],
                limits=Limits(
                    _WALL_S, memory_bytes=_MEMORY_BYTES, processes=_PROCESSES, scratch_bytes=_SCRATCH_BYTES
                ),
                inputs={"selftest_job.py": _JOB},
            )
        )
        try:
            facts = process.wait()
        finally:
            process.close()
        claims = _claims(facts)
        claims |= {name: (False, detail) for name, detail in evidence().items()}
    promised = promised_by(sandbox.name, root=os.geteuid() == 0)
    unknown = (False, "could not be attempted: the self-test ended before")
    found = tuple(Attempt(name, name in promised, *claims.get(name, unknown)) for name in PROMISES)
    return SelfTestReport(found, time.monotonic() - began)


def _claims(facts: ExitFacts | None) -> dict[str, tuple[bool, str]]:
    found: dict[str, tuple[bool, str]] = {}
    if facts is None:
        return found
    current = ""
    for line in facts.output.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if not isinstance(said, dict):
            continue
        current = str(said.get("trying", current))
        if "promise" in said:
            leak = said.get("leak")
            found[str(said["promise"])] = (leak is None, "refused" if leak is None else str(leak))
    if current in ATTEMPTS and current not in found:
        # It ended during an attempt: expected for memory only.
        killed = current == "memory limit" and facts.status in ("oom", "signal")
        found[current] = (killed, f"the job ended: {facts.status}")
    return found


Evidence = Callable[[], dict[str, str]]
"""Promises that are seen to be broken from here, whatever the job reports."""


@contextmanager
def _targets() -> Iterator[tuple[dict[str, Any], Evidence]]:
    """What the job tries to reach: a file, a directory, two listeners and a process with a key."""
    key, name = secrets.token_hex(12), f"liftbench-selftest-{secrets.token_hex(8)}"
    keys = {"PATH": os.defpath, "LIFTBENCH_SELFTEST_KEY": f"sk-{key}"}
    with (
        owned_folder("selftest") as place,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as abstract,
        subprocess.Popen(["sleep", "60"], env=keys, stdin=subprocess.DEVNULL) as victim,
    ):
        try:
            folder = Path(place)
            folder.chmod(0o755)
            (folder / "secret").write_text(f"{secrets.token_hex(12)}\n")
            (folder / "secret").chmod(0o644)
            (folder / "open").mkdir()
            (folder / "open").chmod(0o777)
            abstract.bind(f"\0{name}")
            abstract.listen()

            def evidence() -> dict[str, str]:
                found: dict[str, str] = {}
                if victim.poll() is not None:
                    found["processes"] = "a process outside was ended"
                if list((folder / "open").iterdir()):
                    found["writing"] = "a file appeared outside"
                for one, promise in ((listener, "network"), (abstract, "abstract sockets")):
                    if select.select([one], [], [], 0)[0]:
                        found[promise] = "a listener on this machine was reached"
                return found

            yield (
                {
                    "secret": str(folder / "secret"),
                    "folder": str(folder / "open"),
                    "key": key,
                    "port": listener.getsockname()[1],
                    "abstract": name,
                    "victim": victim.pid,
                    "processes": _PROCESSES,
                    "scratch_bytes": _SCRATCH_BYTES,
                    "memory_bytes": _MEMORY_BYTES,
                },
                evidence,
            )
        finally:
            victim.kill()
