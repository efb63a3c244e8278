"""A grader in a process of its own (`python -m harness.fleet.host`): orders on stdin, events on stdout.

It ends when stdin does, that is with its driver. The first line is its HostSpec.
"""

from __future__ import annotations

import os
import queue
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from harness import __version__
from harness.builder.cache import BuildCache, build_key
from harness.device.machine import cores_of_gpu
from harness.errors import HarnessBug, InfraError, UsageError
from harness.fleet.agreement import facts_of
from harness.fleet.messages import Event, Failure, HostSpec, Order
from harness.grading.opening import open_grading_setup
from harness.grading.setup import BuildSetup, GradingSetup, open_build_setup
from harness.records import Project

BEAT_S: Final = 2.0
"""Between two signs of life."""

Send = Callable[[Event], None]


class Host:
    """Carries out orders in a fixed number of threads."""

    def __init__(self, spec: HostSpec, setup: BuildSetup, send: Send) -> None:
        self._spec = spec
        self._setup = setup
        self._send = send
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        for _ in range(spec.at_once):
            # They live as long as this process: a sandboxed process dies with the thread that started it.
            threading.Thread(target=self._work, daemon=True).start()

    def put(self, order: Order) -> None:
        self._orders.put(order)

    def _work(self) -> None:
        while True:
            order = self._orders.get()
            try:
                event = self._carried_out(order)
            except (InfraError, OSError) as error:
                event = Event(failure=Failure.of(error))
            except Exception as error:  # noqa: BLE001 - the driver is told, and goes on
                event = Event(failure=Failure.of(HarnessBug(f"{type(error).__name__}: {error}")))
            self._send(event.model_copy(update={"order": order.number, "done": True}))

    def _carried_out(self, order: Order) -> Event:
        setup = self._setup
        if order.what == "build":
            return Event(package=self._build(_project(order)))
        if not isinstance(setup, GradingSetup):
            raise HarnessBug("a process that only builds was asked for a grade")
        loaded = order.task.load(setup.cache / "tasks")
        if order.finding is not None:
            return Event(grade=setup.grader.no_project(order.finding, loaded))
        project = _project(order)
        if order.package is not None:
            self._cache.unpack(self._key(project), order.package)
        if order.lost_a_device:
            setup.grader.lost_a_device(project.digest)
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "build.log"
            grade = setup.grader.grade(project, loaded, log=log, observer=self._observer(order.number))
            text = log.read_text(errors="replace") if log.is_file() else None
        return Event(grade=grade, log=text)

    def _observer(self, number: int) -> Callable[[str], None]:
        return lambda stage: self._send(Event(order=number, stage=stage))

    def _build(self, project: Project) -> str | None:
        self._setup.build(project, self._spec.target)
        return self._cache.packed(self._key(project))

    def _key(self, project: Project) -> str:
        return build_key(project, self._spec.target, self._setup.toolchain)

    @property
    def _cache(self) -> BuildCache:
        return BuildCache(self._setup.cache / "builds")


def _project(order: Order) -> Project:
    if order.project is None:
        raise HarnessBug("an order without its project")
    return order.project


def open_setup(spec: HostSpec, say: Callable[[str], None]) -> BuildSetup:
    """What the process works with. Raises UsageError, and InfraError where a GPU is not usable."""
    if spec.liftbench != __version__:  # its sandbox may be another version's as well
        raise UsageError(f"it differs: liftbench {__version__} there, {spec.liftbench} here")
    cache = Path(spec.cache)
    cache.mkdir(parents=True, exist_ok=True)
    if spec.builds_only:
        return open_build_setup(spec.sandbox, cache, say, spec.target)
    setup = open_grading_setup(
        spec.sandbox,
        cache,
        say,
        target=spec.target,
        protocol=spec.protocol,
        timed=spec.timed,
        emulate=spec.emulate,
        gpu=spec.gpu,
        cores=None if spec.gpu is None else cores_of_gpu(spec.index, spec.gpus),
    )
    if spec.gpu is not None and setup.grader.device_bytes is None:
        setup.close()
        raise UsageError(f"GPU {spec.gpu} cannot be used: {setup.grader.no_device or 'it is not there'}")
    return setup


def _sender(out: TextIO) -> Send:
    lock = threading.Lock()

    def send(event: Event) -> None:
        with lock, suppress(BrokenPipeError):  # the driver is gone, and this process ends
            out.write(event.model_dump_json(exclude_defaults=True) + "\n")
            out.flush()

    return send


def _as_usual() -> None:
    """Undo what a scheduler sets for its workers: children inherit it."""
    with suppress(OSError):  # not allowed below what the scheduler itself has
        Path("/proc/self/oom_score_adj").write_text("0")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> int:
    """Serve until stdin ends; 2 where nothing can be graded here."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what others print goes to stderr
    send = _sender(out)
    _as_usual()
    spec = HostSpec.model_validate_json(sys.stdin.readline())
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_S):
            send(Event())

    threading.Thread(target=beat, daemon=True).start()
    try:
        setup = open_setup(spec, _say)
    except (InfraError, UsageError, OSError) as error:
        send(Event(failure=Failure.of(error)))
        return 2
    try:
        send(Event(facts=facts_of(spec, setup)))
        host = Host(spec, setup, send)
        for line in sys.stdin:
            host.put(Order.model_validate_json(line))
    finally:
        over.set()
        setup.sandbox.stop()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # threads may still wait for what was killed
