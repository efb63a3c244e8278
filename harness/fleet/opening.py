"""Opens the graders that a command asks for: on GPUs of this machine, or on the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from harness.errors import UsageError
from harness.fleet.agreement import facts_of
from harness.fleet.host_process import HostProcess
from harness.fleet.messages import ORDERS_PER_GPU, HostSpec
from harness.fleet.pool import GraderPool, Place
from harness.fleet.ray_places import Cluster
from harness.grading.setup import GradingSetup, open_build_setup
from harness.judge.usable_gpu import ruled_out
from sandboxes.nvml import Gpu

EVERY: Final = "all"


@dataclass(frozen=True)
class PoolSetup(GradingSetup):
    """Builds projects here, and has others grade them."""

    grader: GraderPool
    leave: Callable[[], None] = lambda: None
    """Leaves the cluster."""

    def noting(self, note: Callable[[str], None]) -> AbstractContextManager[None]:
        return self.grader.noting(note)

    def stop(self) -> None:
        self.grader.close()
        super().stop()
        self.leave()


def chosen_gpus(wanted: str, gpus: Sequence[Gpu]) -> list[Gpu]:
    """`all`, a number of them, or UUIDs with commas. Raises UsageError, also for GPUs of two models and those
    in a mode that rules them out."""
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    if wanted == EVERY:
        chosen = list(gpus)
    elif wanted.isdecimal():
        if not 1 <= int(wanted) <= len(gpus):
            raise UsageError(f"--gpus {wanted}: this machine has {len(gpus)}")
        chosen = list(gpus[: int(wanted)])
    else:
        names = [name.strip() for name in wanted.split(",")]
        unknown = [name for name in names if name not in by_uuid]
        if unknown or len(set(names)) != len(names):
            known = ", ".join(by_uuid) or "there is none"
            instances = [i.uuid for gpu in gpus for i in gpu.instances if i.uuid in unknown]
            why = "a part of a GPU cannot be timed" if instances else f"known: {known}"
            raise UsageError(f"--gpus {wanted}: give all, a number, or UUIDs of GPUs, each once ({why})")
        chosen = [by_uuid[name] for name in names]
    _refuse_unlike(wanted, chosen)
    closed = {gpu.uuid: reason for gpu in chosen if (reason := ruled_out(gpu))}
    if closed:
        others = ",".join(gpu.uuid for gpu in gpus if ruled_out(gpu) is None)
        instead = f"; or --gpus {others}" if others else ""
        listed = "; ".join(f"{uuid}: {reason}" for uuid, reason in closed.items())
        raise UsageError(f"--gpus {wanted}: {listed}{instead}")
    return chosen


def _refuse_unlike(wanted: str, chosen: Sequence[Gpu]) -> None:
    models: dict[str, list[str]] = {}
    for gpu in chosen:
        models.setdefault(gpu.name, []).append(gpu.uuid)
    if len(models) > 1:
        listed = "; ".join(f"{name}: --gpus {','.join(uuids)}" for name, uuids in models.items())
        raise UsageError(f"--gpus {wanted}: one run has one model of GPU, and here are several ({listed})")


def open_pool(
    spec: HostSpec,
    make_places: Callable[[HostSpec], list[Place]],
    say: Callable[[str], None],
    leave: Callable[[], None] = lambda: None,
) -> PoolSetup:
    """The graders of `make_places`, with the sandbox of this machine. Raises UsageError, InfraError."""
    setup = open_build_setup(spec.sandbox, Path(spec.cache), say, spec.target)
    spec = spec.model_copy(update={"sandbox": setup.sandbox.name})
    try:
        pool = GraderPool(make_places(spec), facts_of(spec, setup), say)
    except BaseException:
        setup.close()
        leave()
        raise
    facts = pool.facts.machine
    return PoolSetup(setup.sandbox, setup.toolchain, setup.cache, pool, facts, pool.at_once, leave)


def open_fleet(address: str, spec: HostSpec, say: Callable[[str], None]) -> PoolSetup:
    """Graders on the nodes of the Ray cluster at `address`. Raises UsageError, InfraError."""
    if spec.sandbox == "local":
        raise UsageError("--sandbox local: on the nodes of a fleet projects run in a sandbox that isolates")
    cluster = Cluster.connect(address, say)
    return open_pool(spec, cluster.places, say, cluster.close)


def places_here(uuids: Sequence[str], spec: HostSpec) -> list[Place]:
    """A grader process for each GPU of this machine."""
    specs = [
        spec.model_copy(update={"gpu": uuid, "index": index, "gpus": len(uuids), "at_once": ORDERS_PER_GPU})
        for index, uuid in enumerate(uuids)
    ]
    return [Place(f"GPU {one.gpu}", partial(HostProcess, one), one.at_once) for one in specs]
