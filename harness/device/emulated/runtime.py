"""The libraries of the emulated GPU, compiled once per machine: CUDA runtime, CUDA driver, and what torch needs of both.

Load order in a process: `libcudart.so.13`, `libcuda.so.1`, torch's `libc10.so` and `libtorch_cpu.so`, `libc10_cuda.so`,
`libemulated_torch.so`, then `import torch`; all with RTLD_GLOBAL.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
_STAND_INS: Final = HERE.parent.parent / "builder/templates/stubs"
"""For the headers that a CPU-only torch lacks."""
CUDART, DRIVER, TORCH, C10 = "libcudart.so.13", "libcuda.so.1", "libemulated_torch.so", "libc10_cuda.so"
_RUNTIME: Final = ("scheduler", "memory", "barriers", "copies", "wgmma", "report", "modules", "cudart")
_FLAGS: Final = (
    "-std=c++20", "-O2", "-march=native", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-pthread",
)  # fmt: skip


class CompilerError(Exception):
    """A compiler refused our own source."""


def load_order(folder: Path, torch_root: Path) -> tuple[Path, ...]:
    """The libraries that a process loads before `import torch`, with RTLD_GLOBAL."""
    torch = [
        torch_root / "lib" / name for name in ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so")
    ]
    return (folder / CUDART, folder / DRIVER, *torch, folder / C10, folder / TORCH)


def build_runtime(
    folder: Path,
    cuda_include: Path,
    real_cudart: Path,
    torch_root: Path,
    compiler: str = "g++",
    jobs: int = 1,
) -> None:
    """Compile the four libraries into `folder`; `real_cudart`: NVIDIA's, for the names that it exports.

    Raises CompilerError.
    """
    includes = (f"-I{cuda_include}",)
    with ThreadPoolExecutor(jobs) as pool:
        objects = list(pool.map(lambda name: _object(name, folder, compiler, includes), _RUNTIME))
        stubs = folder / "stubs.cpp"
        stubs.write_text(_stubs(_exported(real_cudart) - _defined(objects)))
        versions = folder / "versions.map"
        versions.write_text(f"{CUDART} {{ global: *; }};\n")
        cudart = str(folder / CUDART)
        link = (*objects, str(stubs), f"-Wl,--version-script={versions}", f"-Wl,-soname,{CUDART}")
        _run(compiler, *_FLAGS, "-shared", *link, "-o", cudart)
        include = torch_root / "include"
        headers = (f"-I{include}", f"-I{include / 'torch/csrc/api/include'}", "-idirafter", str(_STAND_INS))
        libraries = [str(torch_root / "lib" / name) for name in ("libtorch_cpu.so", "libc10.so")]
        made = (("driver", DRIVER, ()), ("torch_shim", TORCH, libraries), ("c10_cuda", C10, libraries))

        def library(one: tuple[str, str, Sequence[str]]) -> None:
            source, name, needs = one
            files = (str(HERE / f"{source}.cpp"), cudart, *needs, f"-Wl,-soname,{name}")
            words = (*_FLAGS, *(headers if needs else ()), *includes, "-shared", *files)
            _run(compiler, "-w", *words, "-o", str(folder / name))

        list(pool.map(library, made))
    for scrap in [*map(Path, objects), versions, stubs]:
        scrap.unlink()


def _object(name: str, folder: Path, compiler: str, includes: Sequence[str]) -> str:
    made = str(folder / f"{name}.o")
    _run(compiler, *_FLAGS, *includes, "-c", str(HERE / f"{name}.cpp"), "-o", made)
    return made


def _run(*command: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    if done.returncode != 0:
        raise CompilerError(f"{command[0]} cannot build the emulated GPU: {done.stderr[:2000]}")


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
