"""A grader on the GPU that is asked: opened for one item, and closed with it.

Every item opens the GPU, grader and workers anew; only builds are shared, by content.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from harness.builder.toolchain import Toolchain, find_toolchain
from harness.device.machine import judge_and_worker_cpus, machine_facts
from harness.errors import SandboxError, UsageError
from harness.grading.grade import Grader
from harness.grading.workers import CALL_WALL_S, WORKER_WALL_S, GradeSettings, Workers
from harness.judge.gpu import Gpu
from harness.records import MachineFacts, Protocol
from harness.suite.catalogue import LoadedTask
from sandboxes.pool import StoppableSandbox
from tools.gpu_check.item import Bench, FellShort, NotHere

SANDBOX = "local"
"""What is asked here is asked of judge and GPU; sandboxes have items of their own."""


@dataclass(frozen=True)
class Judging:
    """What an item of the judge works with."""

    gpu: Gpu
    settings: GradeSettings
    sandbox: StoppableSandbox
    toolchain: Toolchain
    machine: MachineFacts

    @contextmanager
    def grader(self) -> Iterator[Grader]:
        """Grades on the GPU; raises NotHere where this machine cannot build for it."""
        try:
            made = Grader(self.settings, self.sandbox, self.toolchain, self.machine, gpu=self.gpu)
        except UsageError as error:
            raise NotHere(str(error)) from error
        try:
            yield made
        finally:
            made.close()

    @contextmanager
    def workers(self) -> Iterator[Workers]:
        """Starts workers on the GPU."""
        cpus = judge_and_worker_cpus()[1]
        made = Workers(self.settings, self.sandbox, self.toolchain, cpus, self.gpu.transport)
        try:
            yield made
        finally:
            made.close()


@contextmanager
def judging(
    bench: Bench,
    *,
    sandbox: str = SANDBOX,
    protocol: Protocol = "quick",
    worker_wall_s: float = WORKER_WALL_S,
    call_wall_s: float = CALL_WALL_S,
    required: bool = False,
) -> Iterator[Judging]:
    """All that the judge needs on the bench's GPU.

    Raises NotHere where the sandbox, torch or the GPU do not allow it; `required`: the last of these is then
    the answer, and FellShort.
    """
    toolchain = _toolchain(sandbox)
    try:
        inner = bench.sandbox(sandbox)
    except SandboxError as error:
        raise NotHere(str(error)) from error
    tracking = StoppableSandbox(inner)
    machine = machine_facts(toolchain).model_copy(
        update={"gpu": bench.slot.gpu.name, "gpu_uuid": bench.slot.uuid}
    )
    try:
        gpu = bench.gpu(machine)
        if isinstance(gpu, str):
            raise (FellShort if required else NotHere)(gpu)
        try:
            settings = GradeSettings(
                "cuda",
                protocol,
                bench.cache,
                worker_wall_s=worker_wall_s,
                call_wall_s=call_wall_s,
                device=gpu.uuid,
            )
            yield Judging(gpu, settings, tracking, toolchain, machine)
        finally:
            gpu.close()
    finally:
        tracking.stop()


def _toolchain(sandbox: str) -> Toolchain:
    """This machine's. Raises NotHere for a sandbox whose jobs run in an image, and have its tools."""
    if sandbox == "docker":
        raise NotHere("jobs in docker run in an image: liftbench grade --sandbox docker asks that")
    return find_toolchain(os.environ)


def headline(loaded: LoadedTask) -> LoadedTask:
    """The task with its first timed workload in the first dtype for CUDA alone, and no hidden shapes."""
    task = loaded.task
    first = next(one for one in task.workloads_for("cuda") if one.timed)
    dtypes = {**task.dtypes, "cuda": task.dtypes["cuda"][:1]}
    less = {"workloads": (first,), "dtypes": dtypes, "hidden": None}
    return replace(loaded, task=task.model_copy(update=less))
