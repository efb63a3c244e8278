"""Tries a sandbox before it is used: does it keep the promises that its backend makes?

A promise holds only when its attempt was seen to be refused; what was not tried does not hold.
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

_PROBING: Final = Path(__file__).with_name("selftest_job.py")
_WALL_S: Final = 30.0
_PROCESSES: Final = 16
_SCRATCH_BYTES: Final = 16 << 20
# Two dozen children must fit: a watchdog counts the 10 MB that they share for each of them.
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
"""What is tried, in the order in which it is tried, for people."""

_ALL: Final = frozenset(PROMISES)
_PROMISED: Final[dict[str, frozenset[str]]] = {
    "docker": _ALL,
    "bubblewrap": _ALL,
    # A directory on an ordinary file system: only the size of one file can be limited.
    "landlock": _ALL - {"scratch limit"},
    # It isolates nothing; what holds nevertheless is shown, but nobody may rely on it.
    "local": frozenset(("descriptors", "memory limit")),
}


def promised_by(backend: str, *, root: bool) -> frozenset[str]:
    """The promises of a backend, by its name; one that we do not know promises everything.

    `root`: liftbench itself runs as root, so that jobs have users of their own.
    """
    promised = _PROMISED.get(backend, _ALL)
    # The kernel counts processes by user, and without a namespace the job's user is ours.
    return promised if root or backend != "landlock" else promised - {"process limit"}


@dataclass(frozen=True)
class Probed:
    """What came of one promise."""

    name: str
    """A key of PROMISES."""
    promised: bool
    """By this backend."""
    held: bool
    detail: str
    """What got through, or what stopped it. For people."""


@dataclass(frozen=True)
class ProbeReport:
    """What came of all promises on one sandbox."""

    sandbox: str
    promises: tuple[Probed, ...]
    seconds: float

    @property
    def broken(self) -> tuple[Probed, ...]:
        """Promises that the backend makes and does not keep: reason enough to refuse it."""
        return tuple(one for one in self.promises if one.promised and not one.held)


def probe(sandbox: Sandbox, python: str) -> ProbeReport:
    """Try every promise in one job. `python`: the sandbox's interpreter, as seen from inside.

    Raises SandboxError when the job cannot be started.
    """
    began = time.monotonic()
    with _Outside() as outside:
        process = sandbox.start(
            Job(
                role="run",
                argv=[
                    python,
                    "-I",
                    "-S",
                    "{scratch}/selftest_job.py",
                    json.dumps(outside.spec),
                    "{channel}",
                ],
                limits=Limits(
                    wall_s=_WALL_S,
                    memory_bytes=_MEMORY_BYTES,
                    processes=_PROCESSES,
                    scratch_bytes=_SCRATCH_BYTES,
                ),
                inputs={"selftest_job.py": _PROBING},
            )
        )
        try:
            facts = process.wait()
        finally:
            process.close()
        claims = _claims(facts)
        evidence = outside.evidence()
    promised = promised_by(sandbox.name, root=os.geteuid() == 0)
    found = tuple(_verdict(name, name in promised, claims, evidence) for name in PROMISES)
    return ProbeReport(sandbox.name, found, time.monotonic() - began)


def _claims(facts: ExitFacts | None) -> dict[str, tuple[bool, str]]:
    """By promise: whether it held, as far as the inside can say, and why."""
    found: dict[str, tuple[bool, str]] = {}
    if facts is None:
        return found
    tried = ""
    for line in facts.output.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue  # Some other program's words.
        if not isinstance(said, dict):
            continue
        tried = str(said.get("trying", tried))
        if "promise" in said:
            leak = said.get("leak")
            found[str(said["promise"])] = (leak is None, "refused" if leak is None else str(leak))
    if tried in ATTEMPTS and tried not in found:
        # It ended in the middle of an attempt: for memory that is how it should be.
        killed = tried == "memory limit" and facts.status in ("oom", "signal")
        found[tried] = (killed, f"the job ended: {facts.status}")
    return found


def _verdict(
    name: str, promised: bool, claims: dict[str, tuple[bool, str]], evidence: dict[str, str]
) -> Probed:
    if name in evidence:
        return Probed(name, promised, False, evidence[name])
    held, detail = claims.get(name, (False, "could not be tried: the probe ended before"))
    return Probed(name, promised, held, detail)


class _Outside:
    """Planted for one probe: a file, a directory, two listeners and a process with a key."""

    def __enter__(self) -> _Outside:
        self._key = secrets.token_hex(12)
        # Not the user's own temporary directory, which may be closed to others already.
        self._folder = Path(tempfile.mkdtemp(prefix=owned_prefix("probe")))
        try:
            self._folder.chmod(0o755)
            (self._folder / "secret").write_text(f"{secrets.token_hex(12)}\n")
            (self._folder / "secret").chmod(0o644)
            (self._folder / "open").mkdir()
            (self._folder / "open").chmod(0o777)
            self._listener = socket.create_server(("127.0.0.1", 0))
            self._abstract = socket.socket(socket.AF_UNIX)
            name = f"liftbench-probe-{secrets.token_hex(8)}"
            self._abstract.bind(f"\0{name}")
            self._abstract.listen()
            # Ours by user and environment: a copy of what an attacker looks for.
            self._victim = subprocess.Popen(
                ["sleep", "60"],
                env={"PATH": os.defpath, "LIFTBENCH_PROBE_KEY": f"sk-{self._key}"},
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
        """Promises that are seen to be broken from here, whatever the inside says."""
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
