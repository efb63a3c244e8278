"""The job of a worker process, and the judge's end of it: requests with a deadline for every exchange.

A worker's answers are claims; its timeouts, exits and malformed messages become findings.
"""

from __future__ import annotations

import array
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from harness.errors import HarnessBug, SandboxError
from harness.judge import worker_reply
from harness.judge.guarded_buffers import Arena, Layout, Snapshot
from harness.judge.output_sample import OutputSample
from harness.judge.shared_memory import HostTransport, Memory, Transport
from harness.judge.worker_reply import Mode, Reveal, parse
from harness.outcome import Cause
from harness.records import Finding
from sandboxes.job import ExitFacts, Job, Limits, Process, Sandbox, killed_from_outside

_MESSAGE_BYTES = 1 << 16
_LOAD_S = 60.0
_SPIN_S = 0.05
_EXIT_S = 5.0
_JIT_CALL_S = 300.0  # torch.compile's first small op took 20 to 115 s on a loaded two-core machine

_WORKER = Path(__file__).parents[1] / "worker"
_SCRATCH_BYTES, _JIT_SCRATCH_BYTES = 256 << 20, 2 << 30
_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Per worker: nothing that one process compiled is loaded by another.
_JIT_CACHES = {
    "TRITON_CACHE_DIR": "{scratch}/jit/triton",
    "TORCHINDUCTOR_CACHE_DIR": "{scratch}/jit/inductor",
    "TORCH_EXTENSIONS_DIR": "{scratch}/jit/extensions",
    "CUDA_CACHE_PATH": "{scratch}/jit/cuda",
    # Inductor's pool of compilers wants a session of its own, which a worker may not have.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}


@dataclass(frozen=True)
class Source:
    kind: Literal["project", "reference", "null"]
    path: Path | None = None
    """The package's __init__.py, or reference.py."""
    module: str = ""
    function: str = ""
    jit: bool = False
    """The project compiles at run time: its worker needs a compiler and room for what it makes."""
    compiled: bool = False
    namespace: str = ""
    """Where in torch.ops the project's library registers; empty where there is none."""
    repeatable: bool = False
    """Raise Killed for a death that may have come from outside."""


@dataclass(frozen=True)
class Wrapper:
    """What a worker runs under: words before its own, files, environment. It is never pre-started."""

    argv: tuple[str, ...]
    readable: tuple[Path, ...]
    environment: dict[str, str]
    inputs: dict[str, Path] = field(default_factory=dict)
    """Name in the scratch directory -> folder that is copied."""


@dataclass(frozen=True)
class WorkerPlace:
    site: tuple[Path, ...]
    """Directories that torch is imported from."""
    python: Path = Path(sys.executable)
    in_image: bool = False
    """`site` and `python` are paths in a container image, not of this machine."""
    memory_bytes: int | None = None
    cpus: frozenset[int] | None = None
    device: str | None = None
    """UUID of the GPU that they get."""
    under: Wrapper | None = None


def worker_job(source: Source, place: WorkerPlace, wall_s: float) -> Job:
    """The job of a worker. Two of the same kind differ only in what they load, so a pre-started one fits."""
    inputs = {"worker": _WORKER}
    if source.kind == "project" and source.path is not None:
        inputs["project"] = source.path.parent
    readable = () if place.in_image else place.site
    if source.kind == "reference" and source.path is not None:
        # The task folders: a reference worker serves one task after another.
        readable = (*readable, source.path.resolve().parents[2])
    # Pages of the scratch directory count as memory; only compilers need much of it.
    scratch_bytes = _JIT_SCRATCH_BYTES if source.jit else _SCRATCH_BYTES
    under = Wrapper((), (), {}) if place.under is None else place.under
    program = ["{scratch}/worker/__main__.py", "{channel}", *(str(d) for d in place.site)]
    return Job(
        role="run_jit" if source.jit else "run",
        argv=[*under.argv, str(place.python), "-I", "-S", *program],
        limits=Limits(wall_s=wall_s, memory_bytes=place.memory_bytes, scratch_bytes=scratch_bytes),
        inputs=inputs | under.inputs,
        readable=(*readable, *under.readable),
        environment={**_THREADS, **(_JIT_CACHES if source.jit else {}), **under.environment},
        cpus=place.cpus,
        device=place.device,
        preload=("torch",) if place.under is None else (),
        site=place.site,
    )


class _Deadline(NamedTuple):
    at: float
    limit_s: float


def _within(seconds: float) -> _Deadline:
    return _Deadline(time.monotonic() + seconds, seconds)


class Failed(Exception):
    """A student's worker failed; `finding` says how. Never leaves grading."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Killed(Exception):
    """A student's worker died by a signal that may have come from outside. Grading repeats the work once in
    fresh processes; a second such death is the student's."""


class WorkerClient:
    """A worker process, from its start to its end; a context manager that kills it."""

    def __init__(
        self,
        source: Source,
        sandbox: Sandbox,
        place: WorkerPlace,
        *,
        wall_s: float,
        call_s: float = 30.0,
        transport: Transport | None = None,
    ) -> None:
        """Starts the worker; call load() next. Raises SandboxError. `wall_s` limits its whole life, `call_s`
        one exchange (more where the project compiles in it)."""
        self._source = source
        self.transport: Transport = HostTransport() if transport is None else transport
        self._call_s = max(call_s, _JIT_CALL_S) if source.jit else call_s
        self.operators: int | None = None
        """Operators in the project's namespace, as the worker claims; None before load()."""
        self.memory: Memory | None = None
        """What stays mapped in the worker since the last plan; None where each reveal maps its own arena."""
        self._settings: dict[str, str] = {}
        self._process: Process = sandbox.start(worker_job(source, place, wall_s))

    @property
    def is_null(self) -> bool:
        return self._source.kind == "null"

    def freeze(self, frozen: bool) -> None:
        self._process.pause(frozen)

    @contextmanager
    def thawed(self) -> Iterator[Self]:
        """Run a frozen worker for one turn. After an error it stays as it is: the measurement is over."""
        self.freeze(False)
        yield self
        self.freeze(True)

    def end(self, timeout_s: float) -> ExitFacts | None:
        """Close the channel and let the worker exit by itself; None if it has not within `timeout_s`."""
        with suppress(OSError):  # the worker may have closed it
            self._process.channel.shutdown(socket.SHUT_RDWR)
        return self._process.wait(timeout_s)

    def close(self) -> None:
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self) -> None:
        """Wait for the worker, start its device, load the source. Raises Failed; SandboxError for what fails
        before any student code was loaded."""
        try:
            hello = self._receive_json(_within(_LOAD_S), "while starting", "hello", str)
        except (Failed, Killed) as failure:
            raise SandboxError(f"a worker did not start: {failure}") from failure
        self._settings = worker_reply.global_settings(hello.get("flags"))
        if not isinstance(self.transport, HostTransport):
            self._start_device()
        self.reload(self._source)

    def _start_device(self) -> None:
        """Have the worker start CUDA. Raises SandboxError, also for our own workers: the machine is at fault,
        and no DeviceError, which would be held against the project that is graded."""
        self.transport.before_plan()
        try:
            self._send({"op": "start", "device": self.transport.device.type})
            answer = self._receive_json(_within(_LOAD_S), "while CUDA started", "ok", bool, or_error=True)
            why = str(answer["error"]) if "error" in answer else None
        except (Failed, Killed, HarnessBug) as failure:
            why = str(failure)
        if why is not None:
            raise SandboxError(
                f"CUDA did not start in a worker, before any code of a project was loaded: {why}; "
                "liftbench doctor and make gpu-check test what this machine can do"
            )

    def reload(self, source: Source) -> None:
        """Load `source` into the running worker: only our own code is ever loaded twice."""
        path = "project/__init__.py" if source.kind == "project" else ""
        if source.kind == "reference" and source.path is not None:
            path = str(source.path.resolve())  # the worker has another working directory
        told = {
            name: getattr(source, name) for name in ("kind", "module", "function", "namespace", "compiled")
        }
        self._send({"op": "load", "path": path, **told})
        answer = self._receive_json(_within(_LOAD_S), "while loading", "ok", bool, or_error=True)
        if "error" in answer:
            cause = Cause.MISSING_FUNCTION if answer.get("where") == "function" else Cause.IMPORT_ERROR
            raise self._failure(Finding(cause=cause, message=worker_reply.error_text(str(answer["error"]))))
        operators = answer.get("operators")
        self.operators = operators if type(operators) is int else None

    def changed_settings(self) -> list[tuple[str, str, str]]:
        """(name, before, now) of torch's settings that changed since loading, as the worker claims. Raises
        Failed."""
        self._send({"op": "flags"})
        answer = self._receive_json(_within(self._call_s), "after a call", "flags", dict)
        now = worker_reply.global_settings(answer["flags"])
        before = self._settings.items()
        return [(name, was, now.get(name, "?")) for name, was in before if now.get(name) != was]

    def plan(self, layout: Layout, sets: int = 1, memory: Memory | None = None) -> None:
        """Announce a problem, which fixes the addresses of its operands. `memory`: stays mapped in the
        worker, for all sets; without it each reveal maps its arena. Raises Failed."""
        self.memory = memory
        self.transport.before_plan()
        told = {"set_bytes": layout.set_bytes, "sets": sets, "operands": layout.describe()}
        where = {"device": self.transport.device.type, "transport": self.transport.name}
        descriptor = None if memory is None else memory.handle().descriptor
        self._send({"op": "plan", **told, "scalars": layout.scalars, **where}, descriptor)
        self._receive_json(_within(self._call_s), "while preparing", "ok", bool)

    def call(
        self,
        arena: Arena,
        sets: int,
        doing: str,
        rounds: int = 1,
        mode: Mode = "eager",
        *,
        spin: bool = True,
        sample: OutputSample | None = None,
        keep: bool = True,
    ) -> tuple[Snapshot, Reveal]:
        """Reveal an arena, have every set called, freeze the worker: (snapshot, figures). Raises Failed.

        `spin`: busy-wait for the answer, for the clock's sake; `sample`: what is read at t1, on a device;
        without `keep` the snapshot is empty. A worker in which the arena's memory stays mapped must be frozen
        before; it is thawed after t0.
        """
        message = {"op": "call", "sets": sets, "size": arena.size, "rounds": rounds, "mode": mode}
        deadline = _within(self._call_s)
        self.transport.before_reveal()
        start = time.monotonic()
        handle = arena.handle()  # after t0: where only a copy reveals, this is it
        self._send({**message, **handle.fields}, handle.descriptor)
        if arena.resident:
            self._process.pause(False)
        data = self._receive(deadline, doing, spin=spin)
        done = time.monotonic()
        if data != b"D":
            raise self._unexpected(data, doing)
        taken = self._process.pause(True)
        # A frozen worker can change nothing more in host memory. Work that it started on a device continues:
        # there t1 is when a secret sample of the outputs has been read. The copy is charged to neither.
        if sample is not None:
            sample.read()
            taken = time.monotonic()
        snapshot = arena.snapshot() if keep else []
        late = sample.late(snapshot) if sample is not None and keep else 0
        self._process.pause(False)
        frozen_s = time.monotonic() - done
        self._send({"op": "hide"})
        deadline = deadline._replace(at=deadline.at + frozen_s)
        answer = self._receive_json(deadline, doing, "ns", list)
        return snapshot, worker_reply.read_claims(
            answer,
            calls=sets * rounds,
            outside_us=(taken - start) * 1e6,
            latency_us=(taken - done) * 1e6,
            limit_s=self._call_s,
            late=late,
        )

    def trace(
        self, arena: Arena, doing: str, watch: Literal["operators", "copies"] = "operators"
    ) -> tuple[Snapshot, dict[str, Any]]:
        """Have one set called under observation: (snapshot, the worker's account of it). `watch`: to see what
        it dispatches, or to run it on the worker's own memory. Raises Failed."""
        handle = arena.handle()
        message = {"op": "trace", "size": arena.size, "watch": watch, "namespace": self._source.namespace}
        message["device"] = self.transport.device.type
        self._send({**message, **handle.fields}, handle.descriptor)
        answer = self._receive_json(_within(self._call_s), doing, "trace", dict)
        return arena.snapshot(), answer["trace"]

    def collect(self, names: list[str], destination: Path) -> list[Path]:
        return self._process.collect(names, destination)

    def _failure(self, finding: Finding) -> Exception:
        """What to raise: a student's worker can fail; a failure of our own worker is our bug."""
        if self._source.kind == "project":
            return Failed(finding)
        return HarnessBug(f"our own {self._source.kind} worker failed: {finding.message}")

    def _unexpected(self, data: bytes, doing: str) -> Exception:
        """For an answer that is not the expected one: the op's exception, or a broken protocol."""
        raised = parse(data).get("raised")
        if isinstance(raised, str):
            return self._failure(worker_reply.raised_finding(raised, doing))
        self._process.kill()
        message = f"something wrote {len(data)} bytes of its own to the judge's channel {doing}"
        return self._failure(Finding(cause=Cause.BROKE_PROTOCOL, message=message))

    def _send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        ancillary = []
        if descriptor is not None:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        try:
            self._process.channel.sendmsg([json.dumps(message).encode()], ancillary)
        except OSError:
            raise self._failure(self._end_finding()) from None

    def _spin(self) -> bytes | None:
        """Busy-wait briefly, since a halted virtual core takes 0.1 ms and more to wake up. None: not yet."""
        if (os.cpu_count() or 1) < 2:
            return None
        channel = self._process.channel
        # With a timeout set, Python sleeps in poll() before every recv, whatever its flags.
        channel.setblocking(False)
        give_up = time.monotonic() + _SPIN_S
        while time.monotonic() < give_up:
            try:
                return channel.recv(_MESSAGE_BYTES + 1)
            except BlockingIOError:
                continue
        return None

    def _receive(self, deadline: _Deadline, doing: str, *, spin: bool = False) -> bytes:
        channel = self._process.channel
        try:
            data = self._spin() if spin else None
            if data is None:
                channel.settimeout(max(0.001, deadline.at - time.monotonic()))
                data = channel.recv(_MESSAGE_BYTES + 1)
        except TimeoutError:
            self._process.kill()
            waited = f"no answer within {deadline.limit_s:.3g} s {doing}"
            raise self._failure(Finding(cause=Cause.WALL_TIMEOUT, message=waited)) from None
        except OSError:
            data = b""
        if not data:
            raise self._failure(self._end_finding(doing))
        return data

    def _receive_json(
        self, deadline: _Deadline, doing: str, key: str, kind: type, *, or_error: bool = False
    ) -> dict[str, Any]:
        """The next message, which must have `key` of type `kind`, or (`or_error`) a text as `error`."""
        data = self._receive(deadline, doing)
        message = parse(data)
        raised = isinstance(message.get("raised"), str)
        if not raised and or_error and isinstance(message.get("error"), str):
            return message
        if raised or not isinstance(message.get(key), kind):
            raise self._unexpected(data, doing)
        return message

    def _end_finding(self, doing: str = "") -> Finding:
        """Why the process is gone. Raises SandboxError, or Killed where something outside may have ended
        it."""
        facts = self._process.wait(timeout_s=_EXIT_S)
        if facts is None:
            self._process.kill()
            message = f"the worker closed the judge's channel {doing}"
            return Finding(cause=Cause.BROKE_PROTOCOL, message=message)
        finding = worker_reply.exit_finding(facts, doing)
        if self._source.repeatable and killed_from_outside(facts):
            raise Killed(finding.message)
        return finding
