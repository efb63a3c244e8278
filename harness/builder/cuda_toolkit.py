"""A CUDA toolkit on this machine: nvcc, its headers and its runtime library.

A toolkit's nvcc ran and said so itself.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from harness.records import Record

_PROBE_TIMEOUT_S: Final = 60.0


class CudaToolkit(Record):
    """nvcc and what belongs to it."""

    nvcc: Path
    version: str
    """Such as 13.0.88."""
    root: Path
    include: Path | None
    library: Path | None
    """Directory with libcudart."""
    cudart: Path | None
    """The shared CUDA runtime; wheels have it with its major version only."""
    newest_gxx: int | None = None
    """Newest major version of g++ that nvcc works with, by its own header; None if it does not say."""
    math_include: Path | None
    """Headers of cuBLAS and the like from PyPI wheels, where the toolkit has none."""

    @property
    def release(self) -> tuple[int, int]:
        """(13, 0)"""
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


def _wheel_roots() -> list[Path]:
    """`nvidia/cu13` and the like in site-packages: where the CUDA 13 wheels unpack."""
    spec = importlib.util.find_spec("nvidia")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    return sorted((p for place in places for p in Path(place).glob("cu[0-9]*")), reverse=True)


def _nvcc_candidates(env: Mapping[str, str]) -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if env.get(variable):
            yield Path(env[variable]) / "bin/nvcc"
    yield Path("/usr/local/cuda/bin/nvcc")
    yield from (root / "bin/nvcc" for root in _wheel_roots())
    on_path = which("nvcc", env)
    if on_path is not None:
        yield on_path


def find_cuda(env: Mapping[str, str]) -> CudaToolkit | None:
    """The first nvcc that works: CUDA_HOME, CUDA_PATH, the usual place, wheels, PATH."""
    found = (describe_nvcc(path) for path in _nvcc_candidates(env) if path.is_file())
    return next((cuda for cuda in found if cuda is not None), None)


def describe_nvcc(nvcc: Path) -> CudaToolkit | None:
    """Where a working nvcc really lies: it may be a wrapper script, so ask it."""
    version = re.search(r"\bV(\d+\.\d+\.\d+)", probe([nvcc, "--version"]) or "")
    plan = probe([nvcc, "--dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null"]) or ""
    here = re.search(r"^#\$ _HERE_=(.+)$", plan, re.M)
    if version is None or here is None:
        return None
    binary = (Path(here[1].strip()) / "nvcc").resolve()
    root = binary.parent.parent
    include = _holding("cuda_runtime.h", root / "include", *root.glob("targets/*/include"))
    library = _holding("libcudart.so*", root / "lib64", root / "lib", *root.glob("targets/*/lib"))
    math = None
    if include is not None and not (include / "cublas_v2.h").is_file():
        math = _holding("cublas_v2.h", *(wheel / "include" for wheel in _wheel_roots()))
    return CudaToolkit(
        nvcc=binary,
        version=version[1],
        root=root,
        include=include,
        library=library,
        cudart=_cudart(library),
        newest_gxx=_newest_gxx(include),
        math_include=math,
    )


def _cudart(library: Path | None) -> Path | None:
    found = [] if library is None else library.glob("libcudart.so*")
    return min(found, key=lambda p: len(p.name), default=None)


def _newest_gxx(include: Path | None) -> int | None:
    header = None if include is None else include / "crt/host_config.h"
    if header is None or not header.is_file():
        return None
    found = re.search(r"gcc versions later than (\d+) are not supported", header.read_text(errors="replace"))
    return int(found[1]) if found else None


def find_disassembler(root: Path | None, env: Mapping[str, str]) -> Path | None:
    """The folder with cuobjdump and nvdisasm: of the toolkit at `root`, of a PyPI wheel, or on PATH."""
    on_path = which("nvdisasm", env)
    folders = [] if root is None else [root / "bin"]
    folders += [wheel / "bin" for wheel in _wheel_roots()]
    folders += [] if on_path is None else [on_path.resolve().parent]
    tools = ("cuobjdump", "nvdisasm")
    return next((f.absolute() for f in folders if all(os.access(f / tool, os.X_OK) for tool in tools)), None)


def _holding(pattern: str, *directories: Path) -> Path | None:
    return next((d for d in directories if any(d.glob(pattern))), None)


def probe(command: list[str | Path]) -> str | None:
    """Both streams of a probe; None when it cannot run or fails."""
    try:
        done = subprocess.run(
            command,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
            text=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def which(name: str, env: Mapping[str, str]) -> Path | None:
    """An executable on the PATH of `env`, absolute but with its links unresolved."""
    found = shutil.which(name, path=env.get("PATH", os.defpath))
    return None if found is None else Path(found).absolute()
