"""The judge's end of one worker process.

Nothing a worker says is believed but as a claim; every wait has a deadline; every end has a cause.
"""

from __future__ import annotations

import array
import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from harness.errors import HarnessBug, SandboxError
from harness.judge.arena import Arena, Layout
from harness.judge.endings import exit_finding
from harness.judge.global_flags import changed, claimed
from harness.judge.memory import Memory
from harness.judge.transport import HostTransport, Transport
from harness.judge.worker_job import Source, WorkerPlace, worker_job
from harness.judge.worker_reply import CallTimes, Mode, call_times
from harness.outcome import Cause
from harness.records import Finding
from sandboxes.job import ExitFacts, Process, Sandbox, killed_from_outside

_MESSAGE_BYTES = 1 << 16
_LOAD_S = 60.0
_SPIN_S = 0.05
_JIT_CALL_S = 300.0  # torch.compile's first small op took 20 to 115 s on a loaded two-core machine

Watch = Literal["operators", "copies"]
"""What a traced call is for: to see what it dispatches, or to run it on memory of the worker's own."""


class _Deadline(NamedTuple):
    """Of an exchange."""

    at: float
    """By the monotonic clock."""
    limit_s: float
    """What the worker has in all."""

    def later(self, seconds: float) -> _Deadline:
        """Without the time in which it had to stand still."""
        return self._replace(at=self.at + seconds)


def _within(seconds: float) -> _Deadline:
    return _Deadline(time.monotonic() + seconds, seconds)


class Failed(Exception):
    """A worker fell short; `finding` says how. Caught in check.py and timing.py, never beyond grade.py."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Killed(Exception):
    """A student's worker has died by a signal that may have come from outside. Caught in grade.py, which
    grades once more in fresh processes; from then on such a death is the student's (exits.py)."""


class WorkerClient:
    """A worker that is loaded and can be called."""

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
        """Starts the worker; call load() next. Raises SandboxError when it cannot be started.

        `wall_s` bounds its whole life, `call_s` one exchange (more where the project compiles in it).
        """
        self._source = source
        self.transport: Transport = HostTransport() if transport is None else transport
        self._call_s = max(call_s, _JIT_CALL_S) if source.jit else call_s
        self.operators: int | None = None
        """How many operators are in the project's namespace, as the worker says; None before load()."""
        self.memory: Memory | None = None
        """What stays mapped in the worker since the last plan; None where each reveal maps its own."""
        self._flags: dict[str, str] = {}
        self._process: Process = sandbox.start(worker_job(source, place, wall_s))

    # --- conversation --------------------------------------------------------------------------

    def _fault(self, finding: Finding) -> Exception:
        """What to raise: only a student's worker can fall short; one of ours that does is our bug."""
        if self._source.kind == "project":
            return Failed(finding)
        return HarnessBug(f"our own {self._source.kind} worker failed: {finding.message}")

    def _send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        ancillary = []
        if descriptor is not None:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        try:
            self._process.channel.sendmsg([json.dumps(message).encode()], ancillary)
        except OSError:
            raise self._fault(self._end_finding()) from None

    def _poll(self) -> bytes | None:
        """Busy-wait a little: a halted virtual core takes 0.1 ms and more to wake up. None: not yet."""
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
            data = self._poll() if spin else None
            if data is None:
                channel.settimeout(max(0.001, deadline.at - time.monotonic()))
                data = channel.recv(_MESSAGE_BYTES + 1)
        except TimeoutError:
            self._process.kill()
            waited = f"no answer within {deadline.limit_s:.3g} s {doing}"
            raise self._fault(Finding(cause=Cause.WALL_TIMEOUT, message=waited)) from None
        except OSError:
            data = b""
        if not data:
            raise self._fault(self._end_finding(doing))
        return data

    def _receive_json(
        self, deadline: _Deadline, doing: str, key: str, kind: type, *, or_error: bool = False
    ) -> dict[str, Any]:
        """The next message, which must have `key` of type `kind`, or (`or_error`) a text as `error`."""
        data = self._receive(deadline, doing)
        message = _parsed(data)
        if isinstance(message.get("raised"), str):
            raise self._fault(_raised(message["raised"], doing))
        if or_error and isinstance(message.get("error"), str):
            return message
        if not isinstance(message.get(key), kind):
            self._process.kill()
            raise self._fault(
                Finding(
                    cause=Cause.BROKE_PROTOCOL,
                    message=f"something wrote {len(data)} bytes of its own to the judge's channel {doing}",
                )
            )
        return message

    def _end_finding(self, doing: str = "") -> Finding:
        """Why the worker is gone. Raises SandboxError when it was our doing, Killed when it may have been
        somebody else's."""
        facts = self._process.wait(timeout_s=5.0)
        if facts is None:
            self._process.kill()
            return Finding(
                cause=Cause.BROKE_PROTOCOL, message=f"the worker closed the judge's channel {doing}"
            )
        finding = exit_finding(facts, doing)
        if self._source.repeatable and killed_from_outside(facts):
            raise Killed(finding.message)
        return finding

    # --- what can be asked ---------------------------------------------------------------------

    def load(self) -> None:
        """Wait for the worker and load the source. Raises Failed."""
        deadline = _within(_LOAD_S)
        try:
            hello = self._receive_json(deadline, "while starting", "hello", str)
        except Failed as failure:
            # No student byte has been loaded yet.
            raise SandboxError(f"a worker did not start: {failure.finding.message}") from failure
        self._flags = claimed(hello.get("flags"))
        self.reload(self._source)

    def reload(self, source: Source) -> None:
        """Load `source` into the running worker: only our own code is ever loaded twice."""
        path = "project/__init__.py" if source.kind == "project" else ""
        if source.kind == "reference" and source.path is not None:
            path = str(source.path.resolve())  # the worker stands in another directory
        self._send(
            {
                "op": "load",
                "kind": source.kind,
                "path": path,
                "module": source.module,
                "function": source.function,
                "namespace": source.namespace,
                "compiled": source.compiled,
            }
        )
        answer = self._receive_json(_within(_LOAD_S), "while loading", "ok", bool, or_error=True)
        if "error" in answer:
            missing = answer.get("where") == "function"
            raise self._fault(
                Finding(
                    cause=Cause.MISSING_FUNCTION if missing else Cause.IMPORT_ERROR,
                    message=_last_line_first(str(answer["error"])),
                )
            )
        operators = answer.get("operators")
        self.operators = operators if type(operators) is int else None

    def changed_flags(self) -> list[tuple[str, str, str]]:
        """(name, before, now) of torch's global settings that are not what they were before the source was
        loaded, as the worker says. Raises Failed."""
        self._send({"op": "flags"})
        answer = self._receive_json(_within(self._call_s), "after a call", "flags", dict)
        return changed(self._flags, claimed(answer["flags"]))

    def plan(self, layout: Layout, sets: int, scalars: dict[str, Any], memory: Memory | None = None) -> None:
        """Announce a problem: addresses are fixed from here on. Raises Failed.

        `memory`: stays mapped in the worker, for all sets; without it each reveal maps its arena.
        """
        self.memory = memory
        self._send(
            {
                "op": "plan",
                "set_bytes": layout.set_bytes,
                "sets": sets,
                "operands": layout.describe(),
                "scalars": scalars,
                "device": self.transport.device.type,
                "transport": self.transport.name,
            },
            None if memory is None else memory.handle().descriptor,
        )
        self._receive_json(_within(self._call_s), "while preparing", "ok", bool)

    def call(
        self, arena: Arena, sets: int, doing: str, rounds: int = 1, mode: Mode = "eager"
    ) -> tuple[torch.Tensor, CallTimes]:
        """Reveal an arena, have every set called, freeze the worker, and take the snapshot.

        A worker in which the arena's memory stays mapped must be frozen when this is called; it is thawed
        after t0. Returns (snapshot bytes, times). Raises Failed.
        """
        message = {"op": "call", "sets": sets, "size": arena.size, "rounds": rounds, "mode": mode}
        deadline = _within(self._call_s)
        self.transport.before_reveal()
        start = time.perf_counter()
        handle = arena.handle()  # after t0: where only a copy reveals, this is it
        self._send({**message, **handle.fields}, handle.descriptor)
        if arena.resident:
            self._process.pause(False)
        data = self._receive(deadline, doing, spin=True)
        done = time.perf_counter()
        if data != b"D":
            self._judge_babble(data, doing)
        self._process.pause(True)
        taken = time.perf_counter()
        # Frozen, the worker can change nothing more in host memory: the moment of the snapshot is `taken`,
        # and the time that copying takes is nobody's (docs/decisions/0004-freeze-before-snapshot.md). What
        # it started on a device goes on: there the copy has to be complete first.
        snapshot = arena.snapshot()
        if not self.transport.stops_with_process:
            taken = time.perf_counter()
        self._process.pause(False)
        stood_s = time.perf_counter() - done
        self._send({"op": "hide"})
        answer = self._receive_json(deadline.later(stood_s), doing, "ns", list)
        times = call_times(
            answer,
            sets * rounds,
            outside_s=taken - start,
            latency_s=taken - done,
            most_s=self._call_s,
        )
        return snapshot, times

    def trace(
        self, arena: Arena, doing: str, watch: Watch = "operators"
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Have one set called under observation: (snapshot bytes, what the worker says it saw).

        What it says is as untrusted as all else. Raises Failed.
        """
        handle = arena.handle()
        message = {"op": "trace", "size": arena.size, "watch": watch, "namespace": self._source.namespace}
        message["device"] = self.transport.device.type
        self._send({**message, **handle.fields}, handle.descriptor)
        answer = self._receive_json(_within(self._call_s), doing, "trace", dict)
        return arena.snapshot(), answer["trace"]

    def _judge_babble(self, data: bytes, doing: str) -> None:
        """An answer that is not `done`: an op that raised, or something that is no answer at all."""
        message = _parsed(data)
        if isinstance(message.get("raised"), str):
            raise self._fault(_raised(message["raised"], doing))
        self._process.kill()
        raise self._fault(
            Finding(
                cause=Cause.BROKE_PROTOCOL,
                message=f"something wrote {len(data)} bytes of its own to the judge's channel {doing}",
            )
        )

    def freeze(self, frozen: bool) -> None:
        """Stop the worker's threads while another contender is timed."""
        self._process.pause(frozen)

    def end(self, timeout_s: float) -> ExitFacts | None:
        """Hang up, and let the worker come to an end of its own; None if it has not within `timeout_s`."""
        with suppress(OSError):  # it may have hung up itself
            self._process.channel.shutdown(socket.SHUT_RDWR)
        return self._process.wait(timeout_s)

    def collect(self, names: list[str], destination: Path) -> list[Path]:
        """Copy files out of its scratch directory: a student's. Raises CollectError."""
        return self._process.collect(names, destination)

    def close(self) -> None:
        """Kill the worker and remove its scratch directory."""
        self._process.close()


def _parsed(data: bytes) -> dict[str, Any]:
    """The JSON object in a message; empty for anything else, whatever a student has sent."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _last_line_first(text: str) -> str:
    """The exception's own line, then the traceback."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] + ("\n" + "\n".join(lines) if len(lines) > 1 else "") if lines else "no message"


def _raised(text: str, doing: str) -> Finding:
    memory = any(mark in text for mark in ("MemoryError", "bad_alloc", "can't allocate memory"))
    cause = Cause.OUT_OF_MEMORY if memory else Cause.OP_RAISED
    return Finding(cause=cause, message=f"the op raised {doing}: {_last_line_first(text)}")
