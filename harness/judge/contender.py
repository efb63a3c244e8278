"""The judge's end of one worker process.

Owns: starting a worker, the conversation with it, and what its silence, death or babble means.
Does not own: what is asked of it (check.py, clock.py). Invariant: nothing a worker says is believed
but as a claim; every wait has a deadline; every end has a cause.
"""

from __future__ import annotations

import array
import json
import os
import socket
import time
from dataclasses import dataclass
from typing import Any

from harness.errors import HarnessBug, SandboxError
from harness.judge.arena import Arena, Layout
from harness.judge.endings import exit_finding
from harness.judge.worker_job import Source, WorkerPlace, worker_job
from harness.outcome import Cause
from harness.records import Finding
from sandboxes.job import Process, Sandbox

_MESSAGE_BYTES = 1 << 16
_LOAD_S = 60.0
_SPIN_S = 0.05
_JIT_CALL_S = 120.0  # torch.compile of one small op took 46 s on a loaded two-core machine


class Failed(Exception):
    """A worker fell short; `finding` says how. Caught in check.py and timing.py, never beyond grade.py."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


@dataclass(frozen=True)
class CallTimes:
    """One reveal."""

    outside_s: float
    """From before the descriptor is handed over until the worker is frozen for the snapshot."""
    latency_s: float
    """From `done` until the worker is frozen."""
    inside_ns: tuple[int, ...]
    """What the worker says of each call."""


class Contender:
    """A worker that is loaded and can be called."""

    def __init__(
        self, source: Source, sandbox: Sandbox, place: WorkerPlace, *, wall_s: float, call_s: float = 30.0
    ) -> None:
        """Starts the worker; call load() next. Raises SandboxError when it cannot be started.

        `wall_s` bounds its whole life, `call_s` one exchange (more where the project compiles in it).
        """
        self._source = source
        self._call_s = max(call_s, _JIT_CALL_S) if source.jit else call_s
        self.operators: int | None = None
        """How many operators are in the project's namespace, as the worker says; None before load()."""
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

    def _receive(self, deadline: float, doing: str, *, spin: bool = False) -> bytes:
        channel = self._process.channel
        started = time.monotonic()
        try:
            data = self._poll() if spin else None
            if data is None:
                channel.settimeout(max(0.001, deadline - time.monotonic()))
                data = channel.recv(_MESSAGE_BYTES + 1)
        except TimeoutError:
            self._process.kill()
            waited = f"no answer within {deadline - started:.3g} s {doing}"
            raise self._fault(Finding(cause=Cause.WALL_TIMEOUT, message=waited)) from None
        except OSError:
            data = b""
        if not data:
            raise self._fault(self._end_finding(doing))
        return data

    def _receive_json(self, deadline: float, doing: str, key: str, kind: type) -> dict[str, Any]:
        """The next message, which must have `key` of type `kind` or be an error report."""
        data = self._receive(deadline, doing)
        message = _parsed(data)
        if isinstance(message.get("raised"), str):
            raise self._fault(_raised(message["raised"], doing))
        if isinstance(message.get("error"), str):
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
        """Why the worker is gone. Raises SandboxError when it was our doing."""
        facts = self._process.wait(timeout_s=5.0)
        if facts is None:
            self._process.kill()
            return Finding(
                cause=Cause.BROKE_PROTOCOL, message=f"the worker closed the judge's channel {doing}"
            )
        return exit_finding(facts, doing)

    # --- what can be asked ---------------------------------------------------------------------

    def load(self) -> None:
        """Wait for the worker and load the source. Raises Failed."""
        deadline = time.monotonic() + _LOAD_S
        try:
            self._receive_json(deadline, "while starting", "hello", str)
        except Failed as failure:
            # No student byte has been loaded yet.
            raise SandboxError(f"a worker did not start: {failure.finding.message}") from failure
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
            }
        )
        answer = self._receive_json(time.monotonic() + _LOAD_S, "while loading", "ok", bool)
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

    def plan(self, layout: Layout, sets: int, scalars: dict[str, Any]) -> None:
        """Announce a problem: addresses are fixed from here on. Raises Failed."""
        self._send(
            {
                "op": "plan",
                "set_bytes": layout.set_bytes,
                "sets": sets,
                "operands": layout.describe(),
                "scalars": scalars,
            }
        )
        self._receive_json(time.monotonic() + self._call_s, "while preparing", "ok", bool)

    def call(self, arena: Arena, sets: int, doing: str, rounds: int = 1) -> tuple[Any, CallTimes]:
        """Reveal an arena, have every set called, freeze the worker, and take the snapshot.

        Returns (snapshot bytes, times). Raises Failed.
        """
        message = {"op": "call", "sets": sets, "size": arena.size, "rounds": rounds}
        deadline = time.monotonic() + self._call_s
        start = time.perf_counter()
        self._send(message, arena.descriptor)
        data = self._receive(deadline, doing, spin=True)
        done = time.perf_counter()
        if data != b"D":
            self._judge_babble(data, doing)
        self._process.pause(True)
        frozen = time.perf_counter()
        # Frozen, the worker can change nothing more: the moment of the snapshot is `frozen`, and the
        # time that copying takes is nobody's (docs/decisions/0004-freeze-before-snapshot.md).
        snapshot = arena.snapshot()
        self._process.pause(False)
        answer = self._receive_json(deadline, doing, "ns", list)
        # A claim longer than the reveal's own deadline is none (and might not even fit a float).
        most = int(self._call_s * 1e9)
        inside = tuple(n for n in answer["ns"] if type(n) is int and 0 <= n <= most)
        if len(inside) != sets * rounds:
            inside = ()
        return snapshot, CallTimes(frozen - start, frozen - done, inside)

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
