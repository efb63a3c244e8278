"""What the checks share: the GPU that is asked, and a grader on it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from harness.builder.toolchain import Toolchain, find_cuda, find_toolchain
from harness.device.machine import judge_and_worker_cpus, machine_facts
from harness.errors import SandboxError, UsageError
from harness.grading.grade import Grader
from harness.grading.workers import GradeSettings, Workers
from harness.judge.usable_gpu import Gpu, open_gpu
from harness.records import MachineFacts, Protocol
from harness.suite.catalogue import LoadedTask
from sandboxes.gpu import GpuSlot, watch_gpu
from sandboxes.job import Sandbox
from sandboxes.nvml import Nvml, XidWatch

BACKENDS = ("docker", "bubblewrap", "landlock", "local")
SANDBOX = "local"
"""For checks of judge and GPU; sandboxes have checks of their own."""
_PROBE = Path(__file__).with_name("probe.cu")
_COMPILE_S = 120.0


class Bench:
    """What all checks share: the GPU, NVML, sandboxes by name, and the probe program."""

    def __init__(
        self,
        nvml: Nvml,
        slot: GpuSlot,
        sandbox: Callable[[str], Sandbox],
        folder: Path,
        cache: Path | None = None,
        gpu: Callable[[MachineFacts], Gpu | str] = open_gpu,
    ) -> None:
        """`sandbox` raises SandboxError for one that this machine lacks; `folder` is for temporary files;
        builds are kept in `cache` (default: in `folder`); `gpu` opens the GPU for the judge, or says why it
        cannot."""
        self.nvml = nvml
        self.slot = slot
        self.sandbox = sandbox
        self.gpu = gpu
        self.cache = folder / "cache" if cache is None else cache
        self._folder = folder

    def watch_xids(self) -> XidWatch | None:
        return watch_gpu(self.slot.uuid)

    def probe(self) -> Path:
        """The probe program, compiled for this GPU at the first call. Skips without nvcc."""
        program = self._folder / "probe"
        if not program.exists():
            self._compile(program)
        return program

    def _compile(self, program: Path) -> None:
        cuda = find_cuda(os.environ)
        if cuda is None:
            pytest.skip("nvcc was not found: set CUDA_HOME or PATH")
        major, minor = self.slot.gpu.capability
        # The program goes into sandboxes whose libraries may be older than this machine's.
        static = ("-Xcompiler", "-static-libgcc", "-Xcompiler", "-static-libstdc++")
        command: list[str | Path] = [
            cuda.nvcc,
            f"-arch=sm_{major}{minor}",
            "-O2",
            *static,
            "-o",
            program,
            _PROBE,
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"{cuda.nvcc} could not compile {_PROBE.name}: {error}")
        if done.returncode:
            pytest.skip(f"{cuda.nvcc} could not compile {_PROBE.name}: {done.stderr.strip()[-600:]}")


@dataclass(frozen=True)
class Judging:
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
        try:
            yield made
        finally:
            made.close()

    @contextmanager
    def workers(self) -> Iterator[Workers]:
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
    worker_wall_s: float = GradeSettings.worker_wall_s,
    call_wall_s: float = GradeSettings.call_wall_s,
    required: bool = False,
) -> Iterator[Judging]:
    """All that the judge needs on the bench's GPU, opened for one check and closed with it.

    Skips where the sandbox, torch or the GPU do not allow it; fails for the last of these with `required`.
    """
    toolchain = _toolchain(sandbox)
    try:
        opened = bench.sandbox(sandbox)
    except SandboxError as error:
        pytest.skip(str(error))
    machine = machine_facts(toolchain).model_copy(
        update={"gpu": bench.slot.gpu.name, "gpu_uuid": bench.slot.uuid}
    )
    try:
        gpu = bench.gpu(machine)
        if isinstance(gpu, str):
            (pytest.fail if required else pytest.skip)(gpu)
        try:
            settings = GradeSettings(
                "cuda",
                protocol,
                bench.cache,
                worker_wall_s=worker_wall_s,
                call_wall_s=call_wall_s,
                device=gpu.uuid,
            )
            yield Judging(gpu, settings, opened, toolchain, machine)
        finally:
            gpu.close()
    finally:
        opened.close()


def _toolchain(sandbox: str) -> Toolchain:
    """This machine's. Skips for a sandbox whose jobs run in an image, with its tools."""
    if sandbox == "docker":
        pytest.skip("jobs in docker run in an image: liftbench grade --sandbox docker asks that")
    return find_toolchain(os.environ)


def headline(loaded: LoadedTask) -> LoadedTask:
    """The task with its first timed workload in the first dtype for CUDA alone, and no hidden shapes."""
    task = loaded.task
    first = next(one for one in task.workloads_for("cuda") if one.timed)
    dtypes = {**task.dtypes, "cuda": task.dtypes["cuda"][:1]}
    less = {"workloads": (first,), "dtypes": dtypes, "hidden": None}
    return replace(loaded, task=task.model_copy(update=less))
