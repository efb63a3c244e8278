"""A GPU for machines without one, so that every item's code runs there: NVML and the driver are stand-ins,
device memory is the host's, and experts run on the emulated GPU. Its figures are no measurements."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self

import pytest
import torch

from harness.builder.build import Built
from harness.builder.toolchain import Toolchain, find_cuda
from harness.device.emulated.engine import Engine, Prepared, lacks
from harness.errors import SandboxError
from harness.grading.emulation import Emulation
from harness.judge.sanitizer import Sanitizer
from harness.judge.usable_gpu import Gpu
from harness.records import CheckResult, MachineFacts
from harness.suite.catalogue import LoadedTask
from sandboxes.gpu import GpuSlot
from sandboxes.job import Job, Process, Sandbox
from sandboxes.nvml import Nvml, open_nvml
from sandboxes.registry import open_sandbox
from tests.fakes.cuda_driver import UUID, WithDriver, compile_driver, fresh
from tests.fakes.gpu import WithoutDevice, made_up_gpu
from tests.fakes.nvml import install_fake_nvml
from tests.fakes.sandbox import Wrapped
from tests.fakes.sanitizer import fake_sanitizer
from tests.gpu.bench import Bench, Judging

_PROBE = Path(__file__).parents[1] / "fakes" / "gpu_probe.c"
_SMALL = 64


class StandIn(Bench):
    """GPU 0 of the stand-in for NVML, which the files of `state` describe."""

    emulated = True
    no_cuda = "LIFTBENCH_FAKE_CUDA=cuInit=100"
    bad = False
    """The probe answers what must not be, and the judge has another GPU."""
    xid: int | None = None
    """Reported whenever a job starts."""
    _drivers: ClassVar[dict[Path, Path]] = {}
    _probe_compiles: ClassVar[bool] = False

    def __init__(self, nvml: Nvml, folder: Path, cache: Path, state: Path) -> None:
        super().__init__(nvml, GpuSlot(nvml.gpus()[0]), folder, cache)
        self.state = state
        self._prepared: dict[Path, Prepared] = {}
        if cache not in self._drivers:
            cache.mkdir(parents=True, exist_ok=True)
            self._drivers[cache] = compile_driver(Path(tempfile.mkdtemp(dir=cache)))

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, cache: Path) -> Iterator[Self]:
        """`cache` outlives it, and several processes may share it. Skips without gcc."""
        state = folder / "state"
        state.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            install_fake_nvml(patch, state)
            nvml = open_nvml()
            assert nvml is not None
            with nvml:
                yield cls(nvml, folder, cache, state)

    def sandbox(self, name: str) -> Sandbox:
        """That sandbox with the stand-in for the driver; a prepared expert finds the emulated GPU."""
        if name == "docker":
            raise SandboxError("jobs in docker run in an image, which lacks the stand-ins")
        within = _Emulating(open_sandbox(name), self._drivers[self.cache], self._prepared)
        return WithoutDevice(within, None if self.xid is None else self.state / "events", self.xid or 0)

    def open(self, machine: MachineFacts) -> Gpu | str:
        """With a state of its own."""
        return made_up_gpu(fresh(self._drivers[self.cache]))

    def judge_uuid(self) -> str:
        """NVML and the driver are two stand-ins: their GPUs have names of their own."""
        return "GPU-00" if self.bad else UUID

    def libcuda(self) -> Path:
        """The compiled stand-in."""
        return self._drivers[self.cache]

    def probe(self) -> Path:
        """What answers as the probe would; the probe itself is compiled once, where there is nvcc."""
        if find_cuda(os.environ) is not None and not StandIn._probe_compiles:
            super().probe().unlink()
            StandIn._probe_compiles = True
        program = self.folder / "probe"
        if not program.exists():
            command = ["gcc", f"-DBAD={int(self.bad)}", "-o", program, _PROBE]
            subprocess.run(command, check=True, capture_output=True)
        return program

    def sanitizer(self, toolchain: Toolchain) -> Sanitizer | str:
        """One that runs the program and finds nothing."""
        home = self.folder / "sanitizer"
        home.mkdir()
        return fake_sanitizer(home)

    def headline(self, loaded: LoadedTask) -> LoadedTask:
        """A small hidden shape in the place of the first timed workload."""
        less, hidden = super().headline(loaded), loaded.task.hidden
        (workload,) = less.task.workloads
        dims = {} if hidden is None else {name: _small(*extent) for name, extent in hidden.dims.items()}
        small = workload.model_copy(update={"dims": {**workload.dims, **dims}, "target": None})
        return dataclasses.replace(less, task=less.task.model_copy(update={"workloads": (small,)}))

    def checked(self, judge: Judging, built: Built, loaded: LoadedTask) -> CheckResult:
        """On the emulated GPU, over the same transport; afterwards the expert's kernels are compiled."""
        why = lacks(judge.toolchain)
        if why is not None:
            pytest.skip(why)
        torch.set_num_threads(1)  # others would spin on the cores that the worker uses
        engine = Engine(self.cache / "emulated", judge.sandbox, judge.toolchain)
        with judge.workers() as workers:
            found = Emulation(engine, workers, judge.settings.protocol).check(built, loaded)
        if found.outcome != "correct" or found.check is None:
            pytest.fail(f"{found.outcome}: {found.message}")
        assert built.package is not None and built.ptx is not None
        (library,) = built.package.glob("*.abi3.so")
        self._prepared[built.package] = engine.prepare(library, built.ptx, built.result.key)
        return found.check

    def prepare(self, judge: Judging, loaded: LoadedTask) -> None:
        """A check on the emulated GPU finds the kernels that workers need; the GPU's own check follows."""
        built = judge.built(loaded)
        self.checked(judge, built, loaded)
        super().checked(judge, built, loaded)


def _small(low: int, high: int, step: int = 1) -> int:
    return low + max(0, min(_SMALL, high) - low) // step * step


class _Emulating(Wrapped):
    """Gives workers of prepared projects the emulated GPU, and others the stand-in for the driver."""

    def __init__(self, inner: Sandbox, library: Path, prepared: Mapping[Path, Prepared]) -> None:
        super().__init__(inner)
        self._with_driver, self._prepared = WithDriver(inner, library), prepared

    def start(self, job: Job) -> Process:
        if job.role == "build" or "LIFTBENCH_EMULATED_GPU" in job.environment:
            return self.inner.start(job)
        made = self._prepared.get(job.inputs.get("project", Path()))
        if made is None:
            return self._with_driver.start(job)
        inputs = {**job.inputs, **made.inputs}
        environment = {**job.environment, **made.environment}
        return self.inner.start(dataclasses.replace(job, inputs=inputs, environment=environment, preload=()))
