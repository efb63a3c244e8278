"""Starts a grader process and talks to it; one that dies or falls silent is lost."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from pydantic import ValidationError

from harness.errors import DeviceError
from harness.fleet.messages import Event, HostFacts, HostSpec, Order

SILENCE_S: Final = 30.0
"""Without a sign of life for this long a process counts as lost; one is due every 2 s."""
OPENING_S: Final = 300.0
"""For sandbox, CUDA and the first health check."""
_LEFT: Final = re.compile(r".*(KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL).*|RAY_.*|OMP_NUM_THREADS", re.IGNORECASE)
"""Secrets, and what a scheduler sets for its workers: Ray limits them to one thread."""


class MemberLost(DeviceError):
    """A grader process, or its machine, is gone. No project is blamed for that."""


def clean_environment(environment: Mapping[str, str], **more: str) -> dict[str, str]:
    """Without API keys, and without what a scheduler sets."""
    return {k: v for k, v in environment.items() if not _LEFT.fullmatch(k)} | more


class HostProcess:
    """A running grader process. Thread-safe."""

    def __init__(self, spec: HostSpec, environment: Mapping[str, str] = os.environ) -> None:
        self._queues: dict[int | None, queue.SimpleQueue[Event | None]] = {None: queue.SimpleQueue()}
        self._lock = threading.Lock()
        self._gone = False
        visible = {} if spec.gpu is None else {"CUDA_VISIBLE_DEVICES": spec.gpu}
        if spec.builds_only:
            visible = {"CUDA_VISIBLE_DEVICES": ""}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.fleet.host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=clean_environment(environment, **visible),
            start_new_session=True,  # Ctrl-C is the driver's
        )
        self._heard_s = time.monotonic()
        threading.Thread(target=self._listen, daemon=True).start()
        self._write(spec.model_dump_json())

    @property
    def pid(self) -> int:
        return self._process.pid

    def facts(self) -> HostFacts:
        """Wait until it is ready. Raises InfraError when it cannot be, MemberLost when it dies."""
        event = self._next(self._queues[None], OPENING_S)
        if event.failure is not None:
            raise event.failure.error()
        assert event.facts is not None
        return event.facts

    def ask(self, order: Order, stage: Callable[[str], None]) -> Event:
        """The order's last event. Raises MemberLost."""
        answers: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        with self._lock:
            if self._gone:
                raise self._lost("has ended")
            self._queues[order.number] = answers
        try:
            self._write(order.model_dump_json())
            while True:
                event = self._next(answers, None)
                if event.done:
                    return event
                if event.stage is not None:
                    stage(event.stage)
        finally:
            with self._lock:
                self._queues.pop(order.number, None)

    def kill(self) -> None:
        """End it; what it started ends with it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(OSError):  # what was never sent
                self._process.stdin.close()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            with self._lock:
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()
        except (OSError, ValueError):
            raise self._lost("does not listen any more") from None

    def _next(self, answers: queue.SimpleQueue[Event | None], within_s: float | None) -> Event:
        give_up = None if within_s is None else time.monotonic() + within_s
        while True:
            try:
                event = answers.get(timeout=1.0)
            except queue.Empty:
                silent_s = time.monotonic() - self._heard_s
                if silent_s > SILENCE_S or (give_up is not None and time.monotonic() > give_up):
                    self.kill()
                    raise self._lost(f"gave no sign of life for {silent_s:.0f} s") from None
                continue
            if event is None:
                raise self._lost("ended")
            return event

    def _lost(self, why: str) -> MemberLost:
        code = self._process.poll()
        how = "" if code is None else f" (signal {-code})" if code < 0 else f" (exit code {code})"
        return MemberLost(f"grader process {self._process.pid} {why}{how}")

    def _take(self, line: str) -> None:
        try:
            event = Event.model_validate_json(line)
        except ValidationError:  # cut off by its death
            return
        with self._lock:
            answers = self._queues.get(event.order)
        if answers is not None and event != Event():
            answers.put(event)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as out:
            for line in out:
                self._heard_s = time.monotonic()
                self._take(line)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # how it ended is known only a while after its output has
        with self._lock:
            self._gone = True
            waiting = list(self._queues.values())
        for answers in waiting:
            answers.put(None)
