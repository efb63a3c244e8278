"""The libraries of the emulated GPU: CUDA's runtime and driver, and torch's side of them."""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
_STAND_INS: Final = HERE.parent.parent / "builder/templates/stubs"
"""For the headers that a CPU-only torch lacks."""
CUDART, DRIVER, TORCH, C10 = "libcudart.so.13", "libcuda.so.1", "libemulated_torch.so", "libc10_cuda.so"
_RUNTIME: Final = (
    "scheduler", "memory", "barriers", "copies", "wgmma", "report", "modules", "cudart", "driver",
)  # fmt: skip
_TORCH_SIDE: Final = {"torch_shim": TORCH, "c10_cuda": C10}
_FLAGS: Final = (
    "-std=c++20", "-O2", "-march=native", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-pthread",
)  # fmt: skip


class CompilerError(Exception):
    """A compiler refused our own source."""


def load_order(folder: Path, torch_root: Path) -> tuple[Path, ...]:
    """What a process loads with RTLD_GLOBAL, in this order, before it imports torch."""
    names = ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so")
    torch = [torch_root / "lib" / name for name in names]
    return (folder / CUDART, folder / DRIVER, *torch, folder / C10, folder / TORCH)


def build_cuda(folder: Path, include: Path, real_cudart: Path, compiler: str = "g++", jobs: int = 1) -> None:
    """Compile CUDA's runtime and driver into `folder`. Raises CompilerError.

    `include`: NVIDIA's headers; `real_cudart`: its runtime library, for the names that it exports.
    """
    flags = (compiler, *_FLAGS, f"-I{include}")
    objects = [str(folder / f"{name}.o") for name in _RUNTIME]

    def compile_one(name: str) -> None:
        run_compiler(*flags, "-c", str(HERE / f"{name}.cpp"), "-o", str(folder / f"{name}.o"))

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(compile_one, _RUNTIME))
    versions, stubs = folder / "versions.map", folder / "stubs.cpp"
    versions.write_text(f"{CUDART} {{ global: *; }};\n")
    stubs.write_text(_stubs(_symbols("nm", "-D", str(real_cudart)) - _symbols("nm", *objects)))
    link = (*objects, str(stubs), f"-Wl,--version-script={versions}", f"-Wl,-soname,{CUDART}")
    run_compiler(*flags, "-shared", *link, "-o", str(folder / CUDART))
    driver = ("-Wl,--no-as-needed", str(folder / CUDART), f"-Wl,-soname,{DRIVER}")
    run_compiler(*flags, "-shared", *driver, "-o", str(folder / DRIVER))
    for scrap in [*map(Path, objects), versions, stubs]:
        scrap.unlink()


def build_torch_side(folder: Path, include: Path, torch_root: Path, compiler: str, jobs: int) -> None:
    """Compile what torch needs of them, beside them. Raises CompilerError."""
    headers = (f"-I{torch_root}/include", f"-I{torch_root}/include/torch/csrc/api/include", f"-I{include}")
    flags = (compiler, "-w", *_FLAGS, *headers, "-idirafter", str(_STAND_INS), "-shared")
    link = (str(folder / CUDART), f"{torch_root}/lib/libtorch_cpu.so", f"{torch_root}/lib/libc10.so")

    def compile_one(source: str) -> None:
        name = _TORCH_SIDE[source]
        made = ("-o", str(folder / name))
        run_compiler(*flags, str(HERE / f"{source}.cpp"), *link, f"-Wl,-soname,{name}", *made)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(compile_one, _TORCH_SIDE))


def run_compiler(*command: str) -> None:
    """Run a compiler. Raises CompilerError with what it said."""
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise CompilerError(f"{command[0]} cannot build the emulated GPU: {done.stderr[:2000]}")


def _symbols(*command: str) -> set[str]:
    """CUDA's functions among the symbols that `nm` lists."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(re.findall(r"^[0-9a-f]+ T ((?:__)?cuda\w*)", done.stdout, re.MULTILINE))


def _stubs(names: set[str]) -> str:
    """Functions that the emulator lacks: a project that calls one learns which, and the call fails."""
    head = 'extern "C" int emulated_unsupported(const char*);\n'
    one = 'extern "C" int {0}() {{ return emulated_unsupported("{0}"); }}\n'
    return head + "".join(map(one.format, sorted(names)))
