"""One thing to find out on a GPU, and what it is given to do so.

An item keeps to its own folder and leaves no process.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.builder.toolchain import find_cuda
from harness.judge.gpu import Gpu, open_gpu
from harness.records import MachineFacts
from harness.records.gpu_check import Fact
from sandboxes.gpu import GpuSlot, watch_gpu
from sandboxes.job import Sandbox
from sandboxes.nvml import Nvml, XidWatch

_PROBE = Path(__file__).with_name("probe.cu")
_COMPILE_S = 120.0


class FellShort(Exception):
    """The answer is that something does not hold; `facts` say what was seen."""

    def __init__(self, message: str, facts: Mapping[str, Fact] | None = None) -> None:
        super().__init__(message)
        self.facts = dict(facts or {})


class NotHere(Exception):
    """The question cannot be asked on this machine; the message says why."""


@dataclass(frozen=True)
class Item:
    """One question."""

    name: str
    """Such as `hang/docker`."""
    proves: str
    """What is known when it passes, in one sentence."""
    estimate_s: float
    """It is not begun with less time left than this."""
    measure: Callable[[Bench], dict[str, Fact]]
    """Returns what was found. Raises FellShort, NotHere, or whatever goes wrong."""


class Bench:
    """What all items share: the GPU, the library that tells of it, sandboxes by name, the probe program."""

    def __init__(
        self,
        nvml: Nvml,
        slot: GpuSlot,
        sandbox: Callable[[str], Sandbox],
        folder: Path,
        cache: Path | None = None,
        gpu: Callable[[MachineFacts], Gpu | str] = open_gpu,
    ) -> None:
        """`sandbox` raises SandboxError for one that this machine has not; `folder` is ours to fill.

        Builds are kept in `cache` (default: in `folder`);
        `gpu` opens the GPU of a machine for the judge, or says why it cannot.
        """
        self.nvml = nvml
        self.slot = slot
        self.sandbox = sandbox
        self.gpu = gpu
        self.cache = folder / "cache" if cache is None else cache
        self._folder = folder

    def watch_xids(self) -> XidWatch | None:
        """Watch the GPU from now on; None where it does not report."""
        return watch_gpu(self.slot.uuid)

    def probe(self) -> Path:
        """The probe program, compiled for this GPU at the first call. Raises NotHere without nvcc."""
        program = self._folder / "probe"
        if not program.exists():
            self._compile(program)
        return program

    def _compile(self, program: Path) -> None:
        cuda = find_cuda(os.environ)
        if cuda is None:
            raise NotHere("nvcc was not found: set CUDA_HOME or PATH")
        major, minor = self.slot.gpu.capability
        # The program goes into sandboxes whose libraries may be older than this machine's.
        command: list[str | Path] = [
            cuda.nvcc,
            f"-arch=sm_{major}{minor}",
            "-O2",
            "-Xcompiler",
            "-static-libgcc",
        ]
        command += ["-Xcompiler", "-static-libstdc++", "-o", program, _PROBE]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise NotHere(f"{cuda.nvcc} could not compile {_PROBE.name}: {error}") from error
        if done.returncode:
            raise NotHere(f"{cuda.nvcc} could not compile {_PROBE.name}: {done.stderr.strip()[-600:]}")
