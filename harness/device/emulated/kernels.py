"""Kernels of a PTX module as shared libraries: translated, compiled by g++, cached by content."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.device.emulated.codegen import translate
from harness.device.emulated.ptx import CannotEmulate, Module
from harness.device.emulated.runtime import HERE, CompilerError

FLAGS = (
    "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-march=native", "-fwrapv", "-fno-strict-aliasing",
    "-ffp-contract=off", "-fno-stack-protector", "-fvisibility=hidden",
)  # fmt: skip
"""Signed overflow wraps, products and sums are rounded apart, as PTX says."""
INDEX = "index.txt"


@dataclass(frozen=True)
class Kernel:
    """One kernel: the path of its library, or why there is none."""

    name: str
    library: Path | None
    cannot_emulate: str | None = None


def module_key(ptx: str) -> str:
    """16 hexadecimal digits that name a module: FNV-1a of 64 bits over its text, trailing zeros left out."""
    value = 0xCBF29CE484222325
    for byte in ptx.rstrip("\0").encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def build_kernels(modules: Iterable[str], folder: Path, compiler: str = "g++", jobs: int = 1) -> list[Kernel]:
    """Libraries of all kernels of some modules, and the index by which the runtime finds them, in `folder`.

    The index has lines `module KEY`, and under each `kernel NAME FILE` or `refused NAME REASON`. Raises
    CompilerError if g++ does not compile what the translator wrote.
    """
    folder.mkdir(parents=True, exist_ok=True)
    out: list[Kernel] = []
    lines: list[str] = []
    for ptx in modules:
        kernels = _build_module(ptx, folder, compiler, jobs)
        lines += [f"module {module_key(ptx)}", *map(_record, kernels)]
        out += kernels
    (folder / INDEX).write_text("\n".join([*lines, ""]))
    return out


def _record(kernel: Kernel) -> str:
    if kernel.library is not None:
        return f"kernel {kernel.name} {kernel.library.name}"
    return f"refused {kernel.name} {' '.join((kernel.cannot_emulate or '').split())}"


def _build_module(ptx: str, folder: Path, compiler: str, jobs: int) -> list[Kernel]:
    try:
        module = Module(ptx)
    except CannotEmulate as error:
        return [Kernel(name, None, str(error)) for name in re.findall(r"\.entry\s+([\w$]+)", ptx)]
    sources = [_translated(module, name) for name in module.entries]
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda one: _built(one, folder, compiler), sources))


def _translated(module: Module, name: str) -> Kernel | tuple[str, str]:
    try:
        return name, translate(module, name)
    except CannotEmulate as error:
        return Kernel(name, None, str(error))


def _built(translated: Kernel | tuple[str, str], folder: Path, compiler: str) -> Kernel:
    if isinstance(translated, Kernel):
        return translated
    name, source = translated
    library = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:24]}.so"
    if not library.exists():
        compile_kernel(source, library, compiler)
    return Kernel(name, library)


def compile_kernel(source: str, library: Path, compiler: str = "g++") -> None:
    """Compiles one translated kernel. Raises CompilerError with the compiler's first message."""
    text, made = library.with_suffix(".cpp"), library.with_suffix(f".{os.getpid()}")
    text.write_text(source)
    command = [compiler, *FLAGS, f"-I{HERE}", str(text), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompilerError(f"{compiler} does not compile {text}: {done.stderr[:2000]}")
    made.rename(library)
    text.unlink()
