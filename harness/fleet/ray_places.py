"""Graders on the nodes of a Ray cluster: an actor per GPU relays between the driver and a grader process.

Ray retries nothing: no restart, no repeated call. Every wait of the driver has its own limit, since Ray takes
a minute to notice a node that hangs.
"""

from __future__ import annotations

import os
import queue
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from harness.errors import DeviceError, GraderRefused, InfraError, StorageError, UsageError
from harness.fleet.host_process import OPENING_S, SILENCE_S, HostProcess, MemberLost
from harness.fleet.messages import ORDERS_PER_GPU, Event, Failure, HostFacts, HostSpec, Order
from harness.fleet.pool import Member, Place
from harness.text import first_line
from sandboxes.gpu import find_gpus, slot_named

LOCAL: Final = "local"
_POLL_S: Final = 5.0
_SPARE_THREADS: Final = 2
"""Of an actor, beside those that wait for events."""


class Relay:
    """Runs in an actor on a node; its grader process ends with it."""

    def __init__(self, spec_json: str) -> None:
        spec = HostSpec.model_validate_json(spec_json)
        self._host: HostProcess | Failure
        try:
            self._host = HostProcess(with_gpu(spec, os.environ.get("CUDA_VISIBLE_DEVICES", "")))
        except DeviceError as error:
            self._host = Failure.of(error)
        self._events: dict[int, queue.SimpleQueue[str]] = {}

    def facts(self) -> str:
        """An Event with the facts, or with why there are none."""
        if isinstance(self._host, Failure):
            return Event(failure=self._host).model_dump_json()
        try:
            return Event(facts=self._host.facts()).model_dump_json()
        except InfraError as error:
            return Event(failure=Failure.of(error)).model_dump_json()

    def begin(self, order_json: str) -> None:
        """Carry out an order in a thread; `poll` has its events."""
        order = Order.model_validate_json(order_json)
        events = self._events[order.number] = queue.SimpleQueue()
        host = self._host
        assert isinstance(host, HostProcess)

        def stage(name: str) -> None:
            events.put(Event(stage=name).model_dump_json())

        def ask() -> None:
            try:
                events.put(host.ask(order, stage).model_dump_json())
            except MemberLost as error:
                events.put(Event(done=True, failure=Failure.of(error)).model_dump_json())
                os._exit(1)  # an actor without its grader process is lost

        threading.Thread(target=ask, daemon=True).start()

    def poll(self, number: int) -> str | None:
        """The order's next event, or None after a while."""
        try:
            return self._events[number].get(timeout=_POLL_S)
        except queue.Empty:
            return None

    def forget(self, number: int) -> None:
        self._events.pop(number, None)


def with_gpu(spec: HostSpec, visible: str) -> HostSpec:
    """With the actor's GPU; as it is where the node has no driver. Raises DeviceError."""
    gpus = find_gpus() if spec.target == "cuda" and not spec.builds_only else []
    if not gpus:
        return spec
    if not visible:
        raise GraderRefused("the node has GPUs, and Ray offers none: ray start --num-gpus N")
    slot = slot_named(visible, gpus)
    if slot.instance is not None:
        raise GraderRefused(
            f"{visible} is a part of GPU {slot.gpu.uuid}, and a part of a GPU cannot be timed"
        )
    return spec.model_copy(update={"gpu": slot.uuid, "index": gpus.index(slot.gpu), "gpus": len(gpus)})


class RayMember:
    """An actor as the pool sees it."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray = ray
        self._actor = actor

    def facts(self) -> HostFacts:
        """Wait until it is ready. Raises InfraError."""
        event = Event.model_validate_json(self._get(OPENING_S, self._actor.facts))
        if event.failure is not None:
            raise event.failure.error()
        assert event.facts is not None
        return event.facts

    def ask(self, order: Order, stage: Callable[[str], None]) -> Event:
        """The order's last event. Raises MemberLost, and StorageError where the order cannot be sent."""
        self._get(SILENCE_S, self._actor.begin, order.model_dump_json())
        while True:
            said = self._get(SILENCE_S, self._actor.poll, order.number)
            event = None if said is None else Event.model_validate_json(said)
            if event is not None and event.stage is not None:
                stage(event.stage)
            if event is not None and event.done:
                self._actor.forget.remote(order.number)
                return event

    def kill(self) -> None:
        """End the actor and what it started."""
        with suppress(Exception):  # it may be gone, or the whole cluster
            self._ray.kill(self._actor, no_restart=True)

    def _get(self, within_s: float, method: Any, *given: object) -> Any:
        try:
            return self._ray.get(method.remote(*given), timeout=within_s)
        except self._ray.exceptions.GetTimeoutError:
            raise MemberLost(f"no answer from its node for {within_s:.0f} s") from None
        except (self._ray.exceptions.ObjectStoreFullError, self._ray.exceptions.OutOfDiskError) as error:
            raise StorageError(
                "the object store of this node's Ray is full: free it, or end other jobs"
            ) from error
        except (self._ray.exceptions.RayError, ConnectionError, RuntimeError) as error:
            raise MemberLost(f"{type(error).__name__}: its node or its process is gone") from error


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster that this process is connected to."""

    ray: Any

    @classmethod
    def connect(cls, address: str, say: Callable[[str], None]) -> Cluster:
        """`local` starts a cluster of this machine alone. Raises UsageError."""
        if "://" in address:
            raise UsageError(
                f"--fleet {address}: Ray Client is not supported; run this command on a node of the cluster, "
                "with --fleet HOST:PORT"
            )
        # Ray reads them when it is imported.
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_AUTO_CONNECT": "0"}
        given: dict[str, Any] = {"address": address}
        if address == LOCAL:
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
            given |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        elif os.environ.get("RAY_AUTH_MODE") != "token":
            raise UsageError(
                f"--fleet {address}: whoever reaches the ports of a Ray cluster without a token can run code "
                "on its nodes: set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, the same on each node and here"
            )
        try:
            import ray
        except ImportError:
            raise UsageError("--fleet needs Ray: pip install 'liftbench[ray]', on every node") from None
        try:
            ray.init(log_to_driver=False, configure_logging=False, **given)
        except (ConnectionError, RuntimeError, ValueError) as error:
            told = first_line(f"{error}")
            raise UsageError(f"--fleet {address}: no Ray cluster there: {told}") from error
        return cls(ray)

    def places(self, spec: HostSpec) -> list[Place]:
        """A grader per GPU, or per node where none has one; builders on nodes without a GPU."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        counts = [int(node["Resources"].get("GPU", 0)) for node in nodes]
        if spec.target == "cuda" and any(counts):
            on_gpu = spec.model_copy(update={"at_once": ORDERS_PER_GPU})
            graders = [
                self._place(f"GPU {number} of the cluster", on_gpu, num_gpus=1, num_cpus=0)
                for number in range(sum(counts))
            ]
            idle = [node for node, count in zip(nodes, counts, strict=True) if not count]
            builder = spec.model_copy(update={"builds_only": True})
            return graders + self._each("builds on", idle, builder)
        return self._each("node", nodes, spec)

    def _each(self, word: str, nodes: list[dict[str, Any]], spec: HostSpec) -> list[Place]:
        """One per node that has CPUs. A grader takes them all, so that no node has two, and moves to a node
        that joins after its own is lost."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        places = []
        for node in nodes:
            if cpus := node["Resources"].get("CPU", 0):
                strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=not spec.builds_only)
                name = f"{word} {node['NodeManagerAddress']} ({node['NodeID'][:8]})"
                taken = 0 if spec.builds_only else cpus
                places.append(self._place(name, spec, num_cpus=taken, scheduling_strategy=strategy))
        return places

    def _place(self, name: str, spec: HostSpec, **wanted: Any) -> Place:
        return Place(name, partial(self._open, spec, wanted), spec.at_once, spec.builds_only)

    def _open(self, spec: HostSpec, wanted: dict[str, Any]) -> Member:
        threads = 2 * spec.at_once + _SPARE_THREADS
        actor = self.ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=threads, **wanted)(Relay)
        try:
            return RayMember(self.ray, actor.remote(spec.model_dump_json()))
        except (self.ray.exceptions.RayError, ConnectionError, RuntimeError) as error:
            raise MemberLost(f"{type(error).__name__}: no connection to the cluster") from error

    def close(self) -> None:
        self.ray.shutdown()
