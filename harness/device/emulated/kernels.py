"""Kernels of a PTX module as shared libraries: translated, compiled by g++, cached by content."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.device.emulated.codegen import translate
from harness.device.emulated.ptx import CannotEmulate, Module
from harness.device.emulated.runtime import compiler_facts
from harness.errors import InfraError
from harness.files import write_atomically

HERE = Path(__file__).parent
FLAGS = (
    "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-march=native", "-fwrapv", "-fno-strict-aliasing",
    "-ffp-contract=off", "-fno-stack-protector", "-fvisibility=hidden",
)  # fmt: skip
"""Signed overflow wraps, products and sums are rounded apart, as PTX says."""
_HEADERS = ("machine.h", "numbers.h", "arithmetic.h", "matrices.h", "semantics.h")
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


def build_kernels(modules: Iterable[str], folder: Path, compiler: str = "g++") -> list[Kernel]:
    """Libraries of all kernels of some modules, and the index by which the runtime finds them, in `folder`.

    The index has lines `module KEY`, and under each `kernel NAME FILE` or `refused NAME REASON`. Raises
    InfraError if g++ does not compile what the translator wrote.
    """
    folder.mkdir(parents=True, exist_ok=True)
    out: list[Kernel] = []
    lines: list[str] = []
    for ptx in modules:
        kernels = _build_module(ptx, folder, compiler)
        lines += [f"module {module_key(ptx)}", *map(_record, kernels)]
        out += kernels
    write_atomically(folder / INDEX, "\n".join([*lines, ""]))
    return out


def _record(kernel: Kernel) -> str:
    if kernel.library is not None:
        return f"kernel {kernel.name} {kernel.library.name}"
    return f"refused {kernel.name} {' '.join((kernel.cannot_emulate or '').split())}"


def _build_module(ptx: str, folder: Path, compiler: str) -> list[Kernel]:
    try:
        module = Module(ptx)
    except CannotEmulate as error:
        return [Kernel(name, None, str(error)) for name in re.findall(r"\.entry\s+([\w$]+)", ptx)]
    sources = [_translated(module, name) for name in module.entries]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
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
    digest = hashlib.sha256("\0".join([source, _surroundings(compiler)]).encode()).hexdigest()[:24]
    library = folder / f"{digest}.so"
    if not library.exists():
        compile_kernel(source, library, compiler)
    return Kernel(name, library)


def compile_kernel(source: str, library: Path, compiler: str = "g++") -> None:
    """Compiles one translated kernel. Raises InfraError with the compiler's first message."""
    text, made = library.with_suffix(".cpp"), library.with_suffix(f".{os.getpid()}")
    text.write_text(source)
    command = [compiler, *FLAGS, f"-I{HERE}", str(text), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InfraError(f"{compiler} does not compile {text}: {done.stderr[:2000]}")
    made.rename(library)


@cache
def _surroundings(compiler: str) -> str:
    """What a library depends on besides its source."""
    headers = "".join((HERE / name).read_text() for name in _HEADERS)
    return "\0".join([headers, *FLAGS, compiler_facts(compiler)])
