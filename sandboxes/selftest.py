"""The self-test of a sandbox: one job attempts what the backend promises to refuse.

A promise holds only when its attempt was seen to be refused; one that was not attempted does not hold.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from sandboxes.job import ExitFacts, Job, Limits, Sandbox
from sandboxes.orphans import owned_prefix
from sandboxes.selftest_job import ATTEMPTS

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
    """The promises of a backend; an unknown one promises everything.

    `root`: liftbench runs as root, so that every job has its own user.
    """
    promised = _PROMISED.get(backend, _ALL)
    # RLIMIT_NPROC counts by user, and without a user namespace the job's user is ours.
    return promised if root or backend != "landlock" else promised - {"process limit"}


@dataclass(frozen=True)
class Attempt:
    """The result of one promise."""

    name: str
    """A key of PROMISES."""
    promised: bool
    held: bool
    detail: str
    """What succeeded, or what refused it."""


@dataclass(frozen=True)
class SelfTestReport:
    """The results of all promises on one sandbox."""

    sandbox: str
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
    with _Targets() as targets:
        process = sandbox.start(
            Job(
                role="run",
                argv=[python, "-I", "-S", "{scratch}/selftest_job.py", json.dumps(targets.spec), "{channel}"],
                limits=Limits(
                    wall_s=_WALL_S,
                    memory_bytes=_MEMORY_BYTES,
                    processes=_PROCESSES,
                    scratch_bytes=_SCRATCH_BYTES,
                ),
                inputs={"selftest_job.py": _JOB},
            )
        )
        try:
            facts = process.wait()
        finally:
            process.close()
        claims = _claims(facts)
        evidence = targets.evidence()
    promised = promised_by(sandbox.name, root=os.geteuid() == 0)
    found = tuple(_verdict(name, name in promised, claims, evidence) for name in PROMISES)
    return SelfTestReport(sandbox.name, found, time.monotonic() - began)


def _claims(facts: ExitFacts | None) -> dict[str, tuple[bool, str]]:
    """By promise: whether it held according to the job, and why."""
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


def _verdict(
    name: str, promised: bool, claims: dict[str, tuple[bool, str]], evidence: dict[str, str]
) -> Attempt:
    if name in evidence:
        return Attempt(name, promised, False, evidence[name])
    held, detail = claims.get(name, (False, "could not be attempted: the self-test ended before"))
    return Attempt(name, promised, held, detail)


class _Targets:
    """What the job tries to reach: a file, a directory, two listeners and a process with a key."""

    def __enter__(self) -> _Targets:
        self._key = secrets.token_hex(12)
        self._folder = Path(tempfile.mkdtemp(prefix=owned_prefix("selftest")))
        try:
            self._folder.chmod(0o755)
            (self._folder / "secret").write_text(f"{secrets.token_hex(12)}\n")
            (self._folder / "secret").chmod(0o644)
            (self._folder / "open").mkdir()
            (self._folder / "open").chmod(0o777)
            self._listener = socket.create_server(("127.0.0.1", 0))
            self._abstract = socket.socket(socket.AF_UNIX)
            name = f"liftbench-selftest-{secrets.token_hex(8)}"
            self._abstract.bind(f"\0{name}")
            self._abstract.listen()
            self._victim = subprocess.Popen(
                ["sleep", "60"],
                env={"PATH": os.defpath, "LIFTBENCH_SELFTEST_KEY": f"sk-{self._key}"},
                stdin=subprocess.DEVNULL,
            )
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        self.spec = {
            "secret": str(self._folder / "secret"),
            "folder": str(self._folder / "open"),
            "key": self._key,
            "port": self._listener.getsockname()[1],
            "abstract": name,
            "victim": self._victim.pid,
            "processes": _PROCESSES,
            "scratch_bytes": _SCRATCH_BYTES,
            "memory_bytes": _MEMORY_BYTES,
        }
        return self

    def evidence(self) -> dict[str, str]:
        """Promises that are seen to be broken from here, whatever the job reported."""
        found: dict[str, str] = {}
        if self._victim.poll() is not None:
            found["processes"] = "a process outside was ended"
        if list((self._folder / "open").iterdir()):
            found["writing"] = "a file appeared outside"
        for listener, promise in ((self._listener, "network"), (self._abstract, "abstract sockets")):
            if select.select([listener], [], [], 0)[0]:
                found[promise] = "a listener on this machine was reached"
        return found

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._victim.kill()
        self._victim.wait()
        self._listener.close()
        self._abstract.close()
        shutil.rmtree(self._folder)
