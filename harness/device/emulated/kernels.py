"""Kernels of a PTX module as shared libraries: translated, compiled by g++, cached by content."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.device.emulated.codegen import translate
from harness.device.emulated.ptx import CannotEmulate, Module
from harness.device.emulated.runtime import HERE, CompilerError

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")

FLAGS = (
    "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-march=native", "-fwrapv", "-fno-strict-aliasing",
    "-ffp-contract=off", "-fno-stack-protector", "-fvisibility=hidden",
)  # fmt: skip
"""Signed overflow wraps, products and sums are rounded apart, as PTX says."""
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


def build_kernels(
    modules: Iterable[str],
    folder: Path,
    compiler: str = "g++",
    jobs: int = 1,
    wanted: Container[str] | None = None,
) -> list[Kernel]:
    """Libraries of the `wanted` kernels of some modules (default: all), and the index by which the runtime
    finds them, in `folder`.

    Raises CompilerError if g++ does not compile what the translator wrote.
    """
    folder.mkdir(parents=True, exist_ok=True)
    out: list[Kernel] = []
    index: Index = {}
    for ptx in modules:
        names = _ENTRY.findall(ptx)
        chosen = [name for name in names if wanted is None or name in wanted]
        kernels = _build_module(ptx, chosen, folder, compiler, jobs) if chosen else []
        made = {one.name: one.record for one in kernels}
        index[module_key(ptx)] = {name: made.get(name, MISSING) for name in names}
        out += kernels
    write_index(index, folder)
    return out


def _build_module(ptx: str, names: list[str], folder: Path, compiler: str, jobs: int) -> list[Kernel]:
    try:
        module = Module(ptx)
    except CannotEmulate as error:
        return [Kernel(name, None, str(error)) for name in names]
    sources = [_translated(module, name) for name in names]
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
