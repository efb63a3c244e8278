"""The libraries of the emulated GPU, compiled once per machine: CUDA runtime and driver, and torch's side."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from harness.builder.toolchain import CudaToolkit
from harness.errors import InfraError

HERE: Final = Path(__file__).parent
_STAND_INS: Final = HERE.parent.parent / "builder/templates/stubs"
"""For the headers that a CPU-only torch lacks."""
CUDART, DRIVER, TORCH, C10 = "libcudart.so.13", "libcuda.so.1", "libemulated_torch.so", "libc10_cuda.so"
_RUNTIME: Final = ("scheduler", "memory", "barriers", "copies", "wgmma", "report", "modules", "cudart")
_HEADERS: Final = ("machine", "state", "modules", "errors", "tensor_map")
_FLAGS: Final = (
    "-std=c++20", "-O2", "-march=native", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-pthread",
)  # fmt: skip


@dataclass(frozen=True)
class Runtime:
    """A folder with the four libraries."""

    folder: Path
    torch_root: Path

    @property
    def load_order(self) -> tuple[Path, ...]:
        """What a process loads with RTLD_GLOBAL, in this order, before it imports torch."""
        torch = [
            self.torch_root / "lib" / name
            for name in ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so")
        ]
        return (self.folder / CUDART, self.folder / DRIVER, *torch, self.folder / C10, self.folder / TORCH)


def build_runtime(cache_folder: Path, cuda: CudaToolkit, torch_root: Path, compiler: str = "g++") -> Runtime:
    """The libraries, from `cache_folder` or compiled now (one minute). Raises InfraError if g++ fails."""
    folder = cache_folder / _key(cuda, torch_root, compiler)
    if not folder.is_dir():
        cache_folder.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(dir=cache_folder))
        try:
            _compile_all(making, cuda, torch_root, compiler)
            making.rename(folder)
        except OSError:  # another process was first
            if not folder.is_dir():
                raise
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return Runtime(folder, torch_root)


def _key(cuda: CudaToolkit, torch_root: Path, compiler: str) -> str:
    sources = [*sorted(HERE.glob("*.cpp")), *(HERE / f"{name}.h" for name in _HEADERS)]
    version = (torch_root / "version.py").read_text()
    facts = [
        str(cuda.version),
        version,
        *_FLAGS,
        compiler_facts(compiler),
        *(path.read_text() for path in sources),
    ]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:24]


@cache
def compiler_facts(compiler: str) -> str:
    """What compiled code depends on besides its source: the compiler and, by -march=native, the CPU."""
    commands = ([compiler, "--version"], [compiler, "-march=native", "-Q", "--help=target"])
    return "\0".join(
        subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in commands
    )


def _compile_all(folder: Path, cuda: CudaToolkit, torch_root: Path, compiler: str) -> None:
    assert cuda.include is not None and cuda.cudart is not None
    cuda_include = (f"-I{cuda.include}",)
    objects = []
    for name in _RUNTIME:
        objects.append(str(folder / f"{name}.o"))
        _run(compiler, *_FLAGS, *cuda_include, "-c", str(HERE / f"{name}.cpp"), "-o", objects[-1])
    versions = folder / "versions.map"
    versions.write_text(f"{CUDART} {{ global: *; }};\n")
    stubs = folder / "stubs.cpp"
    stubs.write_text(_stubs(_exported(cuda.cudart) - _defined(objects)))
    link = (*objects, str(stubs), f"-Wl,--version-script={versions}", f"-Wl,-soname,{CUDART}")
    cudart = str(folder / CUDART)
    _run(compiler, *_FLAGS, "-shared", *link, "-o", cudart)
    driver = (str(HERE / "driver.cpp"), cudart, f"-Wl,-soname,{DRIVER}")
    _run(compiler, *_FLAGS, *cuda_include, "-shared", *driver, "-o", str(folder / DRIVER))
    include = torch_root / "include"
    torch = [f"-I{include}", f"-I{include / 'torch/csrc/api/include'}", "-idirafter", str(_STAND_INS)]
    libraries = [str(torch_root / "lib" / name) for name in ("libtorch_cpu.so", "libc10.so")]
    for source, library in (("torch_shim", TORCH), ("c10_cuda", C10)):
        files = (str(HERE / f"{source}.cpp"), cudart, *libraries, f"-Wl,-soname,{library}")
        _run(compiler, "-w", *_FLAGS, *torch, *cuda_include, "-shared", *files, "-o", str(folder / library))
    for scrap in [*folder.glob("*.o"), versions, stubs]:
        scrap.unlink()


def _run(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    if done.returncode != 0:
        raise InfraError(f"{command[0]} cannot build the emulated GPU: {done.stderr[:2000]}")


def _symbols(*command: str) -> set[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(re.findall(r"^[0-9a-f]+ T (\w+)", done.stdout, re.MULTILINE))


def _exported(cudart: Path) -> set[str]:
    """Functions of NVIDIA's runtime library."""
    return {name for name in _symbols("nm", "-D", str(cudart)) if re.match(r"(__)?cuda", name)}


def _defined(objects: Sequence[str]) -> set[str]:
    return _symbols("nm", *objects)


def _stubs(names: set[str]) -> str:
    """Functions that the emulator lacks: a project that calls one learns which, and the call fails."""
    head = 'extern "C" int emulated_unsupported(const char*);\n'
    body = (
        f'extern "C" int {name}() {{ return emulated_unsupported("{name}"); }}\n' for name in sorted(names)
    )
    return head + "".join(body)
