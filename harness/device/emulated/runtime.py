"""The libraries of the emulated GPU, compiled once per machine: CUDA runtime and driver, and torch's side."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from harness.builder.elf import SharedLibrary
from harness.builder.toolchain import CudaToolkit
from harness.errors import InfraError

HERE: Final = Path(__file__).parent
_STAND_INS: Final = HERE.parent.parent / "builder/templates/stubs"
"""For the headers that a CPU-only torch lacks."""
CUDART, DRIVER, TORCH, C10 = "libcudart.so.13", "libcuda.so.1", "libemulated_torch.so", "libc10_cuda.so"
_RUNTIME: Final = ("scheduler", "memory", "barriers", "copies", "wgmma", "report", "modules", "cudart")
_TORCH_SIDE: Final = {"torch_shim": TORCH, "c10_cuda": C10}
_HEADERS: Final = ("machine", "state", "modules", "errors", "tensor_map")
_FLAGS: Final = (
    "-std=c++20", "-O2", "-march=native", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-pthread",
)  # fmt: skip


@dataclass(frozen=True)
class Runtime:
    """Two folders: CUDA's libraries, and torch's side of them."""

    cuda: Path
    torch: Path
    torch_root: Path

    @property
    def load_order(self) -> tuple[Path, ...]:
        """What a process loads with RTLD_GLOBAL, in this order, before it imports torch."""
        names = ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so")
        torch = [self.torch_root / "lib" / name for name in names]
        return (self.cuda / CUDART, self.cuda / DRIVER, *torch, self.torch / C10, self.torch / TORCH)


def build_runtime(cache_folder: Path, cuda: CudaToolkit, torch_root: Path, compiler: str = "g++") -> Runtime:
    """All libraries, from `cache_folder` or compiled now (one minute). Raises InfraError if g++ fails."""
    libraries = build_cuda(cache_folder, cuda, compiler)
    sources = [HERE / f"{name}.cpp" for name in _TORCH_SIDE]
    facts = [libraries.name, (torch_root / "version.py").read_text(), *(path.read_text() for path in sources)]
    made = _cached(cache_folder, facts, lambda to: _compile_torch(to, cuda, libraries, torch_root, compiler))
    return Runtime(libraries, made, torch_root)


def build_cuda(cache_folder: Path, cuda: CudaToolkit, compiler: str = "g++") -> Path:
    """A folder with the CUDA runtime and driver, from `cache_folder` or compiled now. Raises InfraError."""
    sources = [HERE / f"{name}.cpp" for name in (*_RUNTIME, "driver")]
    headers = [HERE / f"{name}.h" for name in _HEADERS]
    texts = [path.read_text() for path in (*sources, *headers)]
    facts = [str(cuda.version), *_FLAGS, compiler_facts(compiler), *texts]
    return _cached(cache_folder, facts, lambda to: _compile_cuda(to, cuda, compiler))


def refusal(library: Path) -> str | None:
    """Why a project's library cannot run on the emulated GPU, as far as its ELF tables show; None if it may.

    Raises ElfError and OSError.
    """
    wanted = {symbol.name for symbol in SharedLibrary.open(library).symbols() if not symbol.defined}
    if b"\0.nv_fatbin\0" not in library.read_bytes() or "__cudaRegisterFatBinary" in wanted:
        return None
    return "the CUDA runtime is linked statically (cudart_static)"


def _cached(cache_folder: Path, facts: Sequence[str], make: Callable[[Path], None]) -> Path:
    """The folder of these facts, filled by `make` in a folder of its own where it is missing."""
    folder = cache_folder / hashlib.sha256("\0".join(facts).encode()).hexdigest()[:24]
    if folder.is_dir():
        return folder
    cache_folder.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(dir=cache_folder))
    try:
        make(making)
        making.chmod(0o755)  # the worker is another user
        making.rename(folder)
    except OSError:  # another process was first
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


@cache
def compiler_facts(compiler: str) -> str:
    """What compiled code depends on besides its source: the compiler and, by -march=native, the CPU."""
    commands = ([compiler, "--version"], [compiler, "-march=native", "-Q", "--help=target"])
    return "\0".join(
        subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in commands
    )


def _compile_cuda(folder: Path, cuda: CudaToolkit, compiler: str) -> None:
    assert cuda.include is not None and cuda.cudart is not None
    flags = (compiler, *_FLAGS, f"-I{cuda.include}")
    objects = [str(folder / f"{name}.o") for name in _RUNTIME]
    for name, made in zip(_RUNTIME, objects, strict=True):
        _run(*flags, "-c", str(HERE / f"{name}.cpp"), "-o", made)
    versions, stubs = folder / "versions.map", folder / "stubs.cpp"
    versions.write_text(f"{CUDART} {{ global: *; }};\n")
    stubs.write_text(_stubs(_exported(cuda.cudart) - _symbols("nm", *objects)))
    link = (*objects, str(stubs), f"-Wl,--version-script={versions}", f"-Wl,-soname,{CUDART}")
    _run(*flags, "-shared", *link, "-o", str(folder / CUDART))
    driver = (str(HERE / "driver.cpp"), str(folder / CUDART), f"-Wl,-soname,{DRIVER}")
    _run(*flags, "-shared", *driver, "-o", str(folder / DRIVER))
    for scrap in [*folder.glob("*.o"), versions, stubs]:
        scrap.unlink()


def _compile_torch(folder: Path, cuda: CudaToolkit, libraries: Path, root: Path, compiler: str) -> None:
    headers = (f"-I{root}/include", f"-I{root}/include/torch/csrc/api/include", f"-I{cuda.include}")
    flags = (compiler, "-w", *_FLAGS, *headers, "-idirafter", str(_STAND_INS), "-shared")
    link = (str(libraries / CUDART), f"{root}/lib/libtorch_cpu.so", f"{root}/lib/libc10.so")
    for source, library in _TORCH_SIDE.items():
        _run(
            *flags, str(HERE / f"{source}.cpp"), *link, f"-Wl,-soname,{library}", "-o", str(folder / library)
        )


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


def _stubs(names: set[str]) -> str:
    """Functions that the emulator lacks: a project that calls one learns which, and the call fails."""
    head = 'extern "C" int emulated_unsupported(const char*);\n'
    body = (
        f'extern "C" int {name}() {{ return emulated_unsupported("{name}"); }}\n' for name in sorted(names)
    )
    return head + "".join(body)
