"""Kernels of a PTX module as shared libraries: translated, compiled by g++, cached by content."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Kernel:
    """One kernel: the path of its library, or why there is none."""

    name: str
    library: Path | None
    cannot_emulate: str | None = None

    @property
    def record(self) -> str:
        """What the index says."""
        if self.library is not None:
            return f"kernel {self.library.name}"
        return f"refused {' '.join((self.cannot_emulate or '').split())}"


def module_key(ptx: str) -> str:
    """16 hexadecimal digits that name a module: FNV-1a of 64 bits over its text, trailing zeros left out."""
    value = 0xCBF29CE484222325
    for byte in ptx.rstrip("\0").encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def first_index(modules: Iterable[str]) -> Index:
    """The index of modules of which nothing is compiled."""
    return {module_key(ptx): dict.fromkeys(_ENTRY.findall(ptx), MISSING) for ptx in modules}


def read_index(folder: Path) -> Index:
    """The index of a folder."""
    index: Index = {}
    kernels: dict[str, str] = {}
    for line in (folder / INDEX).read_text().splitlines():
        word, name, *rest = line.split(" ", 2)
        if word == "module":
            kernels = index[name] = {}
        else:
            kernels[name] = " ".join([word, *rest])
    return index


def write_index(index: Index, folder: Path) -> None:
    """The runtime reads lines `module KEY`, and below each `kernel NAME FILE`, `refused NAME REASON` or
    `missing NAME`."""
    lines: list[str] = []
    for key, kernels in index.items():
        records = ((name, *record.partition(" ")) for name, record in kernels.items())
        lines += [f"module {key}", *(f"{word} {name} {rest}".rstrip() for name, word, _, rest in records)]
    fresh = folder / f"{INDEX}.{os.getpid()}"
    fresh.write_text("\n".join([*lines, ""]))
    fresh.rename(folder / INDEX)


def precompile(folder: Path, compiler: str = "g++") -> None:
    """The header of all kernels, precompiled into `folder`. Raises CompilerError."""
    made = folder / f"{HEADER}.gch"
    run_compiler(compiler, *FLAGS, "-x", "c++-header", str(HERE / HEADER), "-o", str(made))


def build_kernels(
    modules: Iterable[str],
    folder: Path,
    compiler: str = "g++",
    jobs: int = 1,
    wanted: Container[str] | None = None,
    headers: Path = HERE,
) -> list[Kernel]:
    """Libraries of the `wanted` kernels of some modules (default: all), and the index by which the runtime
    finds them, in `folder`. `headers`: what precompile() filled.

    Raises CompilerError if g++ does not compile what the translator wrote.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def build(translated: tuple[str, str | CannotEmulate]) -> Kernel:
        name, source = translated
        if isinstance(source, CannotEmulate):
            return Kernel(name, None, str(source))
        library = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:24]}.so"
        if not library.exists():
            compile_kernel(source, library, compiler, headers)
        return Kernel(name, library)

    out: list[Kernel] = []
    index: Index = {}
    with ThreadPoolExecutor(jobs) as pool:
        for ptx in modules:
            names = _ENTRY.findall(ptx)
            chosen = [name for name in names if wanted is None or name in wanted]
            kernels = list(pool.map(build, _translated(ptx, chosen)))
            made = {one.name: one.record for one in kernels}
            index[module_key(ptx)] = {name: made.get(name, MISSING) for name in names}
            out += kernels
    write_index(index, folder)
    return out


def _translated(ptx: str, names: list[str]) -> Iterator[tuple[str, str | CannotEmulate]]:
    """Name of each kernel, and its C++ or why there is none."""
    if not names:
        return
    try:
        module = Module(ptx)
    except CannotEmulate as error:
        yield from ((name, error) for name in names)
        return
    for name in names:
        try:
            yield name, translate(module, name)
        except CannotEmulate as error:
            yield name, error


def compile_kernel(source: str, library: Path, compiler: str = "g++", headers: Path = HERE) -> None:
    """Compiles one translated kernel. Raises CompilerError with the compiler's first message."""
    text, made = library.with_suffix(".cpp"), library.with_suffix(f".{os.getpid()}")
    text.write_text(source)
    run_compiler(compiler, *FLAGS, "-shared", f"-I{headers}", f"-I{HERE}", str(text), "-o", str(made))
    made.rename(library)
    text.unlink()
