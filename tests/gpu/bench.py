"""What the GPU's items share: the GPU itself, a judge on it, a grader, and the experts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from harness.builder.build import Built, build
from harness.builder.toolchain import Toolchain, find_cuda, find_toolchain
from harness.device.machine import judge_and_worker_cpus, machine_facts
from harness.errors import SandboxError, UsageError
from harness.grading.grade import Grader
from harness.grading.workers import GradeSettings, Workers, project_source
from harness.judge.check import check
from harness.judge.sanitizer import Sanitizer, find_sanitizer
from harness.judge.usable_gpu import Gpu, open_gpu
from harness.judge.worker_client import Failed
from harness.records import CheckResult, MachineFacts, Project, Protocol
from harness.suite.catalogue import LoadedTask, expert_project, select_tasks
from sandboxes.driver import driver_libraries
from sandboxes.gpu import GpuSlot, watch_gpu
from sandboxes.job import Sandbox
from sandboxes.nvml import Nvml, XidWatch
from sandboxes.registry import open_sandbox

SANDBOX: Final = "local"
"""For what asks about judge and GPU; sandboxes have items of their own."""
OTHERS: Final = ("landlock", "bubblewrap", "docker")
FIRST_TASK: Final = "l1/softmax"
"""The one expert that goes through everything first."""
CALLS: Final = Path(__file__).parent / "calls" / "__init__.py"
"""A project that does next to nothing."""
_PROBE = Path(__file__).with_name("probe.cu")
_COMPILE_S, _BUILD_WALL_S = 120.0, 600.0


class Bench:
    """The real GPU. `StandIn` replaces what a machine without one lacks."""

    emulated = False
    no_cuda = "CUDA_VISIBLE_DEVICES=-1"
    """Keeps CUDA from starting in a process."""

    def __init__(self, nvml: Nvml, slot: GpuSlot, folder: Path, cache: Path) -> None:
        """`folder` is for temporary files; builds are kept in `cache`."""
        self.nvml, self.slot = nvml, slot
        self.folder, self.cache = folder, cache

    def sandbox(self, name: str) -> Sandbox:
        """Raises SandboxError for one that this machine lacks."""
        return open_sandbox(name)

    def open(self, machine: MachineFacts) -> Gpu | str:
        """The GPU, opened for the judge, or why it cannot be."""
        return open_gpu(machine)

    def judge_uuid(self) -> str:
        """The GPU, or the part of it, that the judge opens."""
        return self.slot.uuid

    def libcuda(self) -> Path:
        """The driver's library that the judge uses."""
        return next(path for path in driver_libraries() if path.name == "libcuda.so.1")

    def watch_xids(self) -> XidWatch | None:
        """Collects the GPU's Xids; None where they are not reported."""
        return watch_gpu(self.slot.uuid)

    def probe(self) -> Path:
        """The probe program, compiled for this GPU at the first call. Skips without nvcc."""
        program = self.folder / "probe"
        cuda = find_cuda(os.environ)
        if cuda is None:
            pytest.skip("nvcc was not found: set CUDA_HOME or PATH")
        if program.exists():
            return program
        major, minor = self.slot.gpu.capability
        # The program goes into sandboxes whose libraries may be older than this machine's.
        static = ("-Xcompiler", "-static-libgcc", "-Xcompiler", "-static-libstdc++")
        command = [cuda.nvcc, f"-arch=sm_{major}{minor}", "-O2", *static, "-o", program, _PROBE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
        if done.returncode:
            pytest.fail(f"{cuda.nvcc} could not compile {_PROBE.name}: {done.stderr.strip()[-600:]}")
        return program

    def sanitizer(self, toolchain: Toolchain) -> Sanitizer | str:
        """compute-sanitizer, or why it cannot be used."""
        return find_sanitizer(None if toolchain.cuda is None else toolchain.cuda.root)

    def headline(self, loaded: LoadedTask) -> LoadedTask:
        """The task with its first timed workload in the first dtype for CUDA alone, and no hidden shapes."""
        task = loaded.task
        first = next(one for one in task.workloads_for("cuda") if one.timed)
        dtypes = {**task.dtypes, "cuda": task.dtypes["cuda"][:1]}
        less = {"workloads": (first,), "dtypes": dtypes, "hidden": None}
        return replace(loaded, task=task.model_copy(update=less))

    def checked(self, judge: Judging, built: Built, loaded: LoadedTask) -> CheckResult:
        """The check stage of `quick` for a build. Fails where its worker does."""
        with judge.workers() as workers, workers.start(project_source(built, loaded.task)) as worker:
            try:
                worker.load()
                return check(worker, loaded, "cuda", judge.settings.protocol)
            except Failed as failure:
                pytest.fail(f"{failure.finding.cause}: {failure.finding.message}")

    def prepare(self, judge: Judging, loaded: LoadedTask) -> None:
        """Whatever a grade of the expert needs beside the build."""


@dataclass(frozen=True)
class Judging:
    """A judge on the GPU: what graders and workers are made of."""

    gpu: Gpu
    settings: GradeSettings
    sandbox: Sandbox
    toolchain: Toolchain
    machine: MachineFacts

    @contextmanager
    def grader(self) -> Iterator[Grader]:
        """Grades on the GPU; skips where this machine cannot build for it."""
        try:
            made = Grader(self.settings, self.sandbox, self.toolchain, self.machine, gpu=self.gpu)
        except UsageError as error:
            pytest.skip(str(error))
        with closing(made):
            yield made

    @contextmanager
    def workers(self) -> Iterator[Workers]:
        """Workers that share the GPU's memory with the judge."""
        cpus = judge_and_worker_cpus()[1]
        with closing(Workers(self.settings, self.sandbox, self.toolchain, cpus, self.gpu.transport)) as made:
            yield made

    def expert(self, loaded: LoadedTask) -> Project:
        """The task's expert. Skips where nothing can be compiled."""
        expert, missing = expert_project(loaded.task), self.toolchain.missing("cuda")
        if expert is None or missing is not None:
            pytest.skip(f"{loaded.task.id} cannot be built: {missing or 'it has no expert project'}")
        return expert

    def built(self, loaded: LoadedTask) -> Built:
        """The task's expert, compiled."""
        expert, chain, cache = self.expert(loaded), self.toolchain, self.settings.cache / "builds"
        made = build(expert, "cuda", sandbox=self.sandbox, toolchain=chain, cache=cache, wall_s=_BUILD_WALL_S)
        if made.result.finding is not None:
            pytest.fail(f"{loaded.task.id} was not built: {made.result.finding.message}")
        return made


@contextmanager
def judging(
    gpu: Bench,
    *,
    sandbox: str = SANDBOX,
    protocol: Protocol = "quick",
    worker_wall_s: float = GradeSettings.worker_wall_s,
    call_wall_s: float = GradeSettings.call_wall_s,
) -> Iterator[Judging]:
    """All that the judge needs on the GPU, opened for one item and closed with it. Skips without the sandbox.
    Ends the session where the GPU cannot be used: an earlier item may have broken it."""
    if sandbox == "docker":
        pytest.skip("jobs in docker run in an image: liftbench grade --sandbox docker asks that")
    toolchain = find_toolchain(os.environ)
    try:
        within = gpu.sandbox(sandbox)
    except SandboxError as error:
        pytest.skip(str(error))
    told = {"gpu": gpu.slot.gpu.name, "gpu_uuid": gpu.slot.uuid}
    machine = machine_facts(toolchain).model_copy(update=told)
    with closing(within):
        opened = gpu.open(machine)
        if isinstance(opened, str):
            pytest.exit(f"the GPU cannot be used: {opened}", 2)
        limits = {"worker_wall_s": worker_wall_s, "call_wall_s": call_wall_s}
        settings = GradeSettings("cuda", protocol, gpu.cache, device=opened.uuid, **limits)
        with closing(opened):
            yield Judging(opened, settings, within, toolchain, machine)


def experts() -> dict[str, LoadedTask]:
    """Shipped tasks with an expert project and dtypes for CUDA, by id."""
    every = {loaded.task.id: loaded for loaded in select_tasks([])}
    return {k: v for k, v in every.items() if v.task.dtypes.get("cuda") and expert_project(v.task)}
