"""Kernels of a PTX module as shared libraries: translated, compiled by g++, cached by content."""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.device.emulated.codegen import translate
from harness.device.emulated.ptx import CannotEmulate, Module
from harness.device.emulated.runtime import HERE, run_compiler

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")

FLAGS = (
    "-std=c++20", "-O1", "-w", "-fPIC", "-march=native", "-fwrapv", "-fno-strict-aliasing",
    "-ffp-contract=off", "-fno-stack-protector", "-fvisibility=hidden",
)  # fmt: skip
"""Signed overflow wraps, products and sums are rounded apart, as PTX says."""
HEADER = "semantics.h"
"""Included by all kernels, and most of the time to compile a small one."""
INDEX = "index.txt"
MISSING = "missing"

Index = dict[str, dict[str, str]]
"""By module and kernel: `kernel FILE`, `refused REASON` or `missing` (not compiled yet)."""


def module_key(ptx: str) -> str:
    """Names a module: CRC-32 of its text, trailing zeros left out, in 8 hexadecimal digits."""
    return f"{zlib.crc32(ptx.rstrip(chr(0)).encode()):08x}"


def first_index(modules: Iterable[str]) -> Index:
    """The index of modules of which nothing is compiled."""
    return {module_key(ptx): dict.fromkeys(_ENTRY.findall(ptx), MISSING) for ptx in modules}


def read_index(folder: Path) -> Index:
    """The index of a folder."""
    index: Index = {}
    kernels: dict[str, str] = {}
    for line in (folder / INDEX).read_text().splitlines():
        name, _, record = line.strip().partition(" ")
        if line.startswith(" "):
            kernels[name] = record
        else:
            kernels = index[name] = {}
    return index


def write_index(index: Index, folder: Path) -> None:
    """The runtime reads lines `KEY`, and below each ` NAME RECORD`."""
    lines: list[str] = []
    for key, kernels in index.items():
        lines += [key, *(f" {name} {record}" for name, record in kernels.items())]
    fresh = folder / f"{INDEX}.{os.getpid()}"
    fresh.write_text("\n".join([*lines, ""]))
    fresh.rename(folder / INDEX)


def precompile(folder: Path, compiler: str = "g++") -> None:
    """The header of all kernels, precompiled into `folder`. Raises CompilerError."""
    made = folder / f"{HEADER}.gch"
    run_compiler(compiler, *FLAGS, "-x", "c++-header", str(HERE / HEADER), "-o", str(made))


def build_kernels(
    modules: Sequence[str],
    folder: Path,
    compiler: str = "g++",
    jobs: int = 1,
    wanted: Container[str] | None = None,
    headers: Path = HERE,
) -> Index:
    """Libraries of the `wanted` kernels of some modules (default: all), and the index by which the runtime
    finds them, in `folder`. `headers`: what precompile() filled.

    Raises CompilerError if g++ does not compile what the translator wrote.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def record(source: str | CannotEmulate) -> str:
        if isinstance(source, CannotEmulate):
            return f"refused {' '.join(str(source).split())}"
        library = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:24]}.so"
        if not library.exists():
            compile_kernel(source, library, compiler, headers)
        return f"kernel {library.name}"

    index = first_index(modules)
    with ThreadPoolExecutor(jobs) as pool:
        for ptx in modules:
            kernels = index[module_key(ptx)]
            chosen = [name for name in kernels if wanted is None or name in wanted]
            kernels |= zip(chosen, pool.map(record, _translated(ptx, chosen)), strict=True)
    write_index(index, folder)
    return index


def _translated(ptx: str, names: list[str]) -> Iterator[str | CannotEmulate]:
    """The C++ of each kernel, or why there is none."""
    module: Module | None = None
    for name in names:
        try:
            module = module or Module(ptx)
            yield translate(module, name)
        except CannotEmulate as error:
            yield error


def compile_kernel(source: str, library: Path, compiler: str = "g++", headers: Path = HERE) -> None:
    """Compiles one translated kernel. Raises CompilerError with the compiler's first message."""
    text, made = library.with_suffix(".cpp"), library.with_suffix(f".{os.getpid()}")
    text.write_text(source)
    run_compiler(compiler, *FLAGS, "-shared", f"-I{headers}", f"-I{HERE}", str(text), "-o", str(made))
    made.rename(library)
    text.unlink()
