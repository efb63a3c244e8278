"""Grader processes that do not exist: what the pool sees of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from harness.errors import InfraError
from harness.fleet.host_process import MemberLost
from harness.fleet.messages import Event, Failure, HostFacts, Order
from harness.records import MachineFacts
from tests.fakes.trials import grade

MACHINE = MachineFacts(platform="Linux x86_64", python="3.11", cpu="a CPU", cpu_count=8, torch="2.13.0")
DRIVER = HostFacts(
    node="head",
    grader_version="7",
    machine=MACHINE,
    toolchain={"torch": "2.13.0"},
    sandbox="bubblewrap",
    sandbox_facts={"network": "none"},
    device_bytes=None,
)


def with_gpu(uuid: str, name: str = "H100", **more: str) -> HostFacts:
    """The facts of a grader with that GPU."""
    machine = MACHINE.model_copy(update={"gpu": name, "gpu_uuid": uuid, "driver": "580.1"})
    return DRIVER.model_copy(update={"machine": machine, "device_bytes": 80 << 30, **more})


class FakeMember:
    """Answers each order with a grade, a failure, or by being lost."""

    def __init__(self, facts: HostFacts | InfraError, fail: Callable[[Order], InfraError | None]) -> None:
        self._facts = facts
        self._fail = fail
        self.killed = threading.Event()
        self.orders: list[Order] = []

    def facts(self) -> HostFacts:
        """The facts, or what opening fails with."""
        if isinstance(self._facts, InfraError):
            raise self._facts
        return self._facts

    def ask(self, order: Order, stage: Callable[[str], None]) -> Event:
        """One answer."""
        self.orders.append(order)
        stage(order.what)
        error = self._fail(order)
        if self.killed.is_set() or isinstance(error, MemberLost):
            raise error or MemberLost("killed")
        if error is not None:
            return Event(order=order.number, done=True, failure=Failure.of(error))
        if order.what == "build":
            return Event(order=order.number, done=True, package="a build")
        project = None if order.project is None else order.project.digest
        return Event(order=order.number, done=True, grade=grade(project=project), log="a log")

    def kill(self) -> None:
        """Ends it."""
        self.killed.set()
