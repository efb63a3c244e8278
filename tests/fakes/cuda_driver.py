"""The compiled stand-in for NVIDIA's driver (cuda_driver.c), and sandboxes whose workers load it."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

from harness.device.cuda import Driver
from sandboxes.job import Job, Process, Sandbox
from tests.fakes.sandbox import Wrapped

NAME = "libcuda.so.1"
UUID = "GPU-00112233-4455-6677-8899-aabbccddeeff"


def compile_driver(folder: Path, *more: str) -> Path:
    """Build the library in `folder`."""
    library = folder / NAME
    sources = [Path(__file__).with_name(name) for name in ("cuda_driver.c", "cuda_kernels.cpp")]
    # -ffp-contract: products and sums are rounded apart where CUDA's intrinsics round them apart.
    flags = ["-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", *more]
    command = ["gcc", *flags, "-shared", "-fPIC", "-o", library, *sources, "-lm", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


class FakeDriver(Driver):
    """The stand-in, with what it counts."""

    def calls(self, name: str) -> int:
        """How often a function was called in this process."""
        return int(self._library.fake_cuda_calls(name.encode()))

    def heal(self) -> None:
        """Forget a sticky error: a new process would."""
        self._library.fake_cuda_heal()

    @property
    def live(self) -> int:
        """Reservations, mappings, allocations, handles and contexts that nobody gave back."""
        return int(self._library.fake_cuda_live())


def fresh(library: Path) -> FakeDriver:
    """A stand-in with a state of its own: the loader knows libraries by file, so each is a copy."""
    copy = library.with_name(f"{NAME}.{len(list(library.parent.iterdir()))}")
    copy.write_bytes(library.read_bytes())
    return FakeDriver(str(copy))


class WithDriver(Wrapped):
    """A sandbox whose jobs find the stand-in where a loader finds NVIDIA's."""

    def __init__(self, inner: Sandbox, library: Path, environment: dict[str, str] | None = None) -> None:
        super().__init__(inner)
        self.library = library
        self.environment = environment or {}

    def start(self, job: Job) -> Process:
        return self.inner.start(
            dataclasses.replace(
                job,
                # A job may not set LD_LIBRARY_PATH, which is the backend's where a GPU is handed in.
                argv=["/usr/bin/env", "LD_LIBRARY_PATH={scratch}", *job.argv],
                inputs={**job.inputs, NAME: self.library},
                environment={**job.environment, **self.environment},
                preload=(),
            )
        )
