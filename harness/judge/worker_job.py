"""The sandbox job of one worker.

Two workers of the same kind get the same job but for what they load, so a pre-started worker fits either.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandboxes.job import Job, Limits

_WORKER = Path(__file__).parents[1] / "worker"
_PRELOAD = ("torch",)
_SCRATCH_BYTES = 256 << 20
_JIT_SCRATCH_BYTES = 2 << 30
_THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Per worker: nothing that one process compiled is loaded by another.
_JIT_CACHES = {
    "TRITON_CACHE_DIR": "{scratch}/jit/triton",
    "TORCHINDUCTOR_CACHE_DIR": "{scratch}/jit/inductor",
    "TORCH_EXTENSIONS_DIR": "{scratch}/jit/extensions",
    "CUDA_CACHE_PATH": "{scratch}/jit/cuda",
    # Inductor's pool of compilers wants a session of its own, which a worker may not have.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}


@dataclass(frozen=True)
class Source:
    """What a worker loads."""

    kind: Literal["project", "reference", "null"]
    path: Path | None = None
    """The package's __init__.py, or reference.py."""
    module: str = ""
    function: str = ""
    jit: bool = False
    """The project compiles at run time: its worker needs a compiler and room for what it makes."""
    compiled: bool = False
    """A reference that is called through torch.compile."""
    namespace: str = ""
    """Where in torch.ops the project's library registers; empty where there is none."""
    repeatable: bool = False
    """Raise Killed for a death that may have come from outside."""


@dataclass(frozen=True)
class Wrapper:
    """A program that a worker runs under; such a worker is never pre-started."""

    argv: tuple[str, ...]
    """Prepended to the worker's own."""
    readable: tuple[Path, ...]
    environment: dict[str, str]


@dataclass(frozen=True)
class WorkerPlace:
    """Where workers run, whatever they load."""

    site: tuple[Path, ...]
    """Directories that torch is imported from."""
    python: Path = Path(sys.executable)
    in_image: bool = False
    """`site` and `python` are paths in a container image, not of this machine."""
    memory_bytes: int | None = None
    cpus: frozenset[int] | None = None
    device: str | None = None
    """UUID of the GPU that they get."""
    under: Wrapper | None = None


def worker_job(source: Source, place: WorkerPlace, wall_s: float) -> Job:
    """The job of a worker that will load `source` and live for at most `wall_s`."""
    inputs = {"worker": _WORKER}
    if source.kind == "project" and source.path is not None:
        inputs["project"] = source.path.parent
    readable = () if place.in_image else place.site
    if source.kind == "reference" and source.path is not None:
        # The task folders: a reference worker serves one task after another.
        readable = (*readable, source.path.resolve().parents[2])
    # Pages of the scratch directory count as memory; only compilers need much of it.
    scratch_bytes = _JIT_SCRATCH_BYTES if source.jit else _SCRATCH_BYTES
    under = Wrapper((), (), {}) if place.under is None else place.under
    program = ["{scratch}/worker/__main__.py", "{channel}", *(str(d) for d in place.site)]
    return Job(
        role="run_jit" if source.jit else "run",
        argv=[*under.argv, str(place.python), "-I", "-S", *program],
        limits=Limits(wall_s=wall_s, memory_bytes=place.memory_bytes, scratch_bytes=scratch_bytes),
        inputs=inputs,
        readable=(*readable, *under.readable),
        environment={**_THREADS, **(_JIT_CACHES if source.jit else {}), **under.environment},
        cpus=place.cpus,
        device=place.device,
        preload=_PRELOAD if place.under is None else (),
        site=place.site,
    )
