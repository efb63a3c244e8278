"""Workers without processes: a thread at the other end of the channel, well behaved or scripted."""

from __future__ import annotations

import array
import json
import math
import mmap
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from sandboxes.job import ExitFacts, Job
from tests.fakes.sandbox import NothingAhead, exit_facts

Act = Callable[..., None]
"""What a worker does with one set: `act(*operands, **scalars)`, as a project's function."""


def receive(channel: socket.socket) -> tuple[dict[str, Any] | None, int]:
    """The next message and its descriptor (-1 for none); None at the end."""
    data, ancillary, _, _ = channel.recvmsg(1 << 16, socket.CMSG_SPACE(4))
    descriptors = array.array("i")
    for _, _, payload in ancillary:
        descriptors.frombytes(payload)
    return (json.loads(data) if data else None), (descriptors[0] if descriptors else -1)


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    """As a worker does."""
    channel.send(json.dumps(message).encode())


@dataclass
class ThreadProcess:
    """Looks like a sandbox's process; `script` talks on the other end in a thread."""

    script: Callable[[socket.socket], None]
    facts: ExitFacts = field(default_factory=lambda: exit_facts("ok"))
    pauses: list[bool] = field(default_factory=list)
    killed: bool = False

    def __post_init__(self) -> None:
        self.channel, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.script(self._theirs)
        except OSError:
            return  # The judge hung up.
        finally:
            self._theirs.close()

    def wait(self, timeout_s: float | None = None) -> ExitFacts | None:
        self._thread.join(0.0 if timeout_s is None else min(timeout_s, 0.2))
        return None if self._thread.is_alive() else self.facts

    def kill(self) -> None:
        self.killed = True

    def pause(self, paused: bool) -> float:
        self.pauses.append(paused)
        return time.monotonic()

    def collect(self, allow: Iterable[str], destination: Path) -> list[Path]:
        return []

    def close(self) -> None:
        self.killed = True
        self.channel.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self.channel.close()


class ThreadSandbox(NothingAhead):
    """Starts one thread per job, and remembers the processes."""

    name = "threads"

    def __init__(self, script: Callable[[socket.socket], None], facts: ExitFacts | None = None) -> None:
        self._script = script
        self._facts = facts or exit_facts("ok")
        self.jobs: list[Job] = []
        self.processes: list[ThreadProcess] = []

    def facts(self) -> dict[str, str]:
        return {}

    def start(self, job: Job) -> ThreadProcess:
        self.jobs.append(job)
        self.processes.append(ThreadProcess(self._script, self._facts))
        return self.processes[-1]


class HonestWorker:
    """A script that does what worker.py does, with `act` for a project, and records what it is told."""

    def __init__(self, act: Act, *, claim_ns: int | None = None, operators: int = 1) -> None:
        """`claim_ns`: what it says of every call; None measures. `operators`: how many it says it has."""
        self._act = act
        self._operators = operators
        self._claim_ns = claim_ns
        self.messages: list[dict[str, Any]] = []
        self.arenas: list[int] = []
        """Inode of every descriptor received."""

    def __call__(self, channel: socket.socket) -> None:
        send(channel, {"hello": torch.__version__, "pid": 0, "flags": self._flags()})
        plan: dict[str, Any] = {}
        kept: mmap.mmap | None = None
        while True:
            message, descriptor = receive(channel)
            if message is None:
                return
            self.messages.append(message)
            if message["op"] == "plan":
                plan, kept = message, None
                if descriptor >= 0:
                    kept = mmap.mmap(descriptor, message["set_bytes"] * message["sets"])
                    self.arenas.append(os.fstat(descriptor).st_ino)
                    os.close(descriptor)
            if message["op"] == "flags":
                send(channel, {"flags": self._flags()})
                continue
            if message["op"] != "call":
                send(channel, {"ok": True, "operators": self._operators})
                continue
            if descriptor >= 0:
                self.arenas.append(os.fstat(descriptor).st_ino)
            shared = mmap.mmap(descriptor, message["size"]) if kept is None else kept
            claims = [
                self._one(torch.frombuffer(shared, dtype=torch.uint8), plan, index)
                for _ in range(message["rounds"])
                for index in range(message["sets"])
            ]
            if descriptor >= 0:
                os.close(descriptor)
            channel.send(b"D")
            self.messages.append(receive(channel)[0] or {})
            send(channel, {"calls": len(claims), "total_ns": sum(claims), "ns": claims[:512]})

    @staticmethod
    def _flags() -> dict[str, Any]:
        # Grad mode belongs to a thread, so that a worker which is one disturbs nobody else.
        return {"grad mode": torch.is_grad_enabled()}

    def _one(self, data: torch.Tensor, plan: dict[str, Any], index: int) -> int:
        operands = []
        for operand in plan["operands"]:
            dtype = getattr(torch, operand["dtype"])
            start = index * plan["set_bytes"] + operand["offset"]
            shape, strides = operand["shape"], operand.get("strides")
            count = math.prod(shape)
            if strides is not None:
                count = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
            flat = data[start : start + count * dtype.itemsize].view(dtype)
            laid = (
                flat.reshape(shape)
                if strides is None
                else flat.as_strided(shape, strides, flat.storage_offset())
            )
            operands.append(laid)
        began = time.perf_counter_ns()
        self._act(*operands, **plan["scalars"])
        return time.perf_counter_ns() - began if self._claim_ns is None else self._claim_ns
