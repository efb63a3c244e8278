"""Reads the device code of a shared library. Runs inside the build sandbox; standard library only.

Notes say what could not be read. Memory does not grow with the length of the disassembly.

Usage: python -I -S cubins.py CUOBJDUMP NVDISASM LIBRARY ANSWER_JSON SECONDS
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

MAX_KERNELS: Final = 256
"""Kernels in the answer, the longest programs first; a template library has thousands."""
MAX_NAME: Final = 300
_MAX_NOTE: Final = 300
_WIDTHS: Final = ("8", "16", "32", "64", "128", "256")
# Classes of SASS instructions, with their opcodes where they have other names. Records contain the classes.
# HGMMA to BGMMA are wgmma, HMMA to DMMA are mma.sync and wmma, LDGSTS is cp.async, SYNCS is mbarrier.
_TABLE: Final = """
    HGMMA QGMMA IGMMA BGMMA HMMA QMMA IMMA BMMA DMMA
    TMA=UTMALDG,UTMASTG,UTMAREDG,UTMAPF,UBLKCP,UBLKRED,UBLKPF LDGSTS LD ST LDS STS LDSM STSM LDL STL
    ATOM=ATOM,ATOMG,ATOMS,RED,REDG,REDS BAR SYNCS=SYNCS,ARRIVES
    FFMA=FFMA,FFMA32I,FFMA2 FADD=FADD,FADD32I,FADD2 FMUL=FMUL,FMUL32I,FMUL2 HFMA2=HFMA2,HADD2,HMUL2
    MUFU DFMA=DFMA,DADD,DMUL SHFL
"""
_OPCODES: Final = {
    word.partition("=")[0]: (word.partition("=")[2] or word).split(",") for word in _TABLE.split()
}
_CLASS_OF: Final = {opcode: name for name, opcodes in _OPCODES.items() for opcode in opcodes}
_BY_WIDTH: Final = ("LDG", "STG")
CLASSES: Final = (
    *_OPCODES,
    *(f"{opcode}.{width}" for opcode in _BY_WIDTH for width in _WIDTHS),
    *("other", "all"),
)
"""Every key that a count can have."""


def width_bits(modifiers: Iterable[str]) -> int:
    """Bits per thread that a load or store moves, from its modifiers: `E.64` is 64, none is 32."""
    for modifier in modifiers:
        if modifier in _WIDTHS:
            return int(modifier)
        if modifier in ("U8", "S8", "U16", "S16"):
            return int(modifier[1:])
    return 32


def instruction_class(opcode: str, operands: str) -> str:
    """The class of one instruction, such as LDG.128 of `LDG.E.128`."""
    base, *modifiers = opcode.split(".")
    if base in _BY_WIDTH:
        return f"{base}.{width_bits(modifiers)}"
    name = _CLASS_OF.get(base, "other")
    # ptxas makes constants as -0 * 0 + c and widens halves as -0 + h: no arithmetic.
    return "other" if name == "HFMA2" and ", -RZ, " in operands else name


_SECTION = re.compile(r"\s*\.section\s+\.text\.([^\s,]+)")
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*)")


@dataclass
class Program:
    """The counted instructions of one section of code."""

    counts: Counter[str] = field(default_factory=Counter)
    stored: int = 0
    """Bytes per thread moved by the marked stores to local memory, and by the marked loads."""
    loaded: int = 0


def count_instructions(lines: Iterable[str], spills: dict[str, frozenset[int]]) -> dict[str, Program]:
    """Programs by section name, from nvdisasm's text, without NOPs.

    `spills`: section -> offsets of the instructions that the compiler marked as spill or refill.
    """
    programs: dict[str, Program] = {}
    current, marked = Program(), frozenset[int]()
    for line in lines:
        found = _INSTRUCTION.match(line)
        if found is None:
            section = _SECTION.match(line)
            if section is not None:
                current = programs.setdefault(section[1], Program())
                marked = spills.get(section[1], frozenset())
            continue
        offset, opcode, operands = found.groups()
        if opcode == "NOP":
            continue
        name = instruction_class(opcode, operands)
        current.counts[name] += 1
        current.counts["all"] += 1
        if int(offset, 16) in marked:
            moved = width_bits(opcode.split(".")[1:]) // 8
            current.stored += moved if name == "STL" else 0
            current.loaded += moved if name == "LDL" else 0
    return programs


# Attribute codes of .nv.info sections, as `cuobjdump -elf` of CUDA 13.2 names them.
_REGCOUNT, _FRAME_SIZE, _MIN_STACK_SIZE, _ANNOTATIONS = 0x2F, 0x11, 0x12, 0x55
_SPILL_REFILL = 1
_ENTRY = 0x10  # STO_CUDA_ENTRY in a symbol's `other`
_FIRST_ANNOTATING = (13, 0)  # the oldest release whose annotations were compared with ptxas -v
# From sm_90 on, a section of shared memory begins with 1 KiB of the system's, which ptxas -v does not count
# (observed for sm_90, sm_90a and sm_100).
_RESERVED_SHARED = 1024


@dataclass
class Kernel:
    """One entry function of a cubin."""

    name: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    code_bytes: int
    spills: frozenset[int] | None
    """Offsets of spill and refill instructions; None if this compiler does not mark them."""


class Cubin:
    """The sections of one cubin. Damaged ones raise ValueError, struct.error, IndexError or OverflowError."""

    def __init__(self, data: bytes, architecture: str) -> None:
        """`architecture`: such as sm_90a."""
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        self._data = data
        self._number = int(re.sub(r"\D", "", architecture) or 0)
        start = struct.unpack_from("<Q", data, 0x28)[0]
        count, names = struct.unpack_from("<HH", data, 0x3C)
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * i) for i in range(count)]
        # Header fields: 0 name, 1 type, 4 offset, 5 size, 6 link.
        self._headers = headers
        self._named = {self._string(headers[names], h[0]): h for h in headers}

    def _string(self, table: tuple[int, ...], offset: int) -> str:
        start = table[4] + offset
        end = self._data.index(b"\0", start)
        return self._data[start:end].decode(errors="replace")

    def _bytes(self, name: str) -> bytes:
        """Contents of a section; empty if there is none."""
        header = self._named.get(name)
        return b"" if header is None else self._data[header[4] : header[4] + header[5]]

    def _attributes(self, name: str) -> Iterator[tuple[int, bytes]]:
        """(code, value) pairs: format 4 has a length of 16 bits, the others two bytes of value."""
        data, at = self._bytes(name), 0
        while at + 4 <= len(data):
            size = struct.unpack_from("<H", data, at + 2)[0] if data[at] == 4 else 0
            yield data[at + 1], data[at + 4 : at + 4 + size]
            at += 4 + size

    def _spills(self, name: str) -> frozenset[int] | None:
        offsets: set[int] = set()
        for code, value in self._attributes(f".nv.info.{name}"):
            if code != _ANNOTATIONS:
                continue
            words = struct.unpack(f"<{len(value) // 4}I", value[: len(value) // 4 * 4])
            if any(kind != _SPILL_REFILL for kind in words[::2]):
                return None  # an annotation of unknown length: the rest cannot be read
            offsets.update(words[1::2])
        found = re.search(rb"release (\d{1,4})\.(\d{1,4})", self._bytes(".note.nv.tkinfo"))
        annotates = found is not None and (int(found[1]), int(found[2])) >= _FIRST_ANNOTATING
        return frozenset(offsets) if offsets or annotates else None

    def kernels(self) -> Iterator[Kernel]:
        table = next((h for h in self._headers if h[1] == 2), None)
        if table is None:
            return
        strings = self._headers[table[6]]
        figures: dict[tuple[int, int], int] = {}
        for code, value in self._attributes(".nv.info"):
            if len(value) == 8:
                symbol, figure = struct.unpack("<II", value)
                figures[code, symbol] = figure
        for index in range(table[5] // 24):
            at = table[4] + 24 * index
            label, info, other, _, _, size = struct.unpack_from("<IBBHQQ", self._data, at)
            if info & 15 != 2 or not other & _ENTRY:
                continue
            name = self._string(strings, label)
            section = self._named.get(f".nv.shared.{name}")  # takes no room in the file
            shared = 0 if section is None else section[5]
            stacks = [figures.get((code, index), 0) for code in (_FRAME_SIZE, _MIN_STACK_SIZE)]
            yield Kernel(
                name=name,
                registers=figures.get((_REGCOUNT, index), 0),
                shared_bytes=max(0, shared - (_RESERVED_SHARED if self._number >= 90 else 0)),
                # Includes callees if ptxas knows them; -1 stands for "unknown".
                stack_bytes=max((s for s in stacks if s < 1 << 31), default=0),
                code_bytes=size,
                spills=self._spills(name),
            )


@dataclass
class Reader:
    """Reads one library with cuobjdump and nvdisasm, until `end` (time.monotonic)."""

    cuobjdump: str
    nvdisasm: str
    end: float
    notes: list[str] = field(default_factory=list)

    def read(self, library: Path) -> list[dict[str, Any]]:
        """Facts about each kernel, with its mangled name and the size of its code as `code_bytes`."""
        folder = library.with_name("cubins")
        folder.mkdir()
        done = subprocess.run(
            [self.cuobjdump, "-xelf", "all", str(library)], cwd=folder, capture_output=True, check=False
        )
        # Small ones first, because nvdisasm reads a whole cubin before it prints.
        cubins = sorted(folder.glob("*.cubin"), key=lambda path: (path.stat().st_size, path.name))
        said = done.stderr.decode(errors="replace").replace(f"{library.parent}/", "")
        if done.returncode != 0 and "does not contain device code" not in said:
            self._note(f"cuobjdump failed: {said.strip()}")
        return [kernel for cubin in cubins for kernel in self._read_cubin(cubin)]

    def _note(self, text: str) -> None:
        self.notes.append(text[:_MAX_NOTE])

    def _read_cubin(self, path: Path) -> list[dict[str, Any]]:
        found = re.search(r"\.(sm_\w+)\.cubin$", path.name)
        architecture = found[1] if found else "unknown"
        try:
            kernels = list(Cubin(path.read_bytes(), architecture).kernels())
        except (ValueError, struct.error, IndexError, OverflowError) as error:
            self._note(f"a cubin could not be read: {error}")
            return []
        programs = self._disassemble(path, kernels) if kernels else {}
        return [_facts(kernel, architecture, programs.get(kernel.name)) for kernel in kernels]

    def _disassemble(self, path: Path, kernels: list[Kernel]) -> dict[str, Program]:
        """Programs of one cubin; empty if nvdisasm fails or the time is up."""
        left_s = self.end - time.monotonic()
        if left_s <= 0:
            self._note(f"instructions of {len(kernels)} kernels were not counted: out of time")
            return {}
        marked = {kernel.name: kernel.spills or frozenset() for kernel in kernels}
        process = subprocess.Popen(
            # --foreground: in a process group of its own it would outlive a sandbox that kills by group.
            ["timeout", "--foreground", f"{left_s:.1f}", self.nvdisasm, "-c", "-ndf", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None
        with process.stdout as lines:
            programs = count_instructions(lines, marked)
        code = process.wait()
        if code != 0:
            why = "ran out of time" if code == 124 else f"failed ({code})"
            self._note(f"instructions of {len(kernels)} kernels were not counted: nvdisasm {why}")
        return {} if code != 0 else programs


def _facts(kernel: Kernel, architecture: str, program: Program | None) -> dict[str, Any]:
    """A DeviceKernel's fields and `code_bytes`."""
    spills = kernel.spills if kernel.stack_bytes else frozenset[int]()
    unknown = spills is None or (program is None and spills)
    spilled = None if unknown else (program or Program())
    return {
        "name": kernel.name,
        "architecture": architecture,
        "registers": kernel.registers,
        "shared_bytes": kernel.shared_bytes,
        "stack_bytes": kernel.stack_bytes,
        "spill_store_bytes": spilled and spilled.stored,
        "spill_load_bytes": spilled and spilled.loaded,
        "instructions": None if program is None else dict(sorted(program.counts.items())),
        "code_bytes": kernel.code_bytes,
    }


def demangled(names: list[str]) -> list[str]:
    """Names by c++filt if it is installed, each on one line and at most MAX_NAME long."""
    try:
        done = subprocess.run(
            ["c++filt"], input="\n".join(names), capture_output=True, text=True, timeout=10, check=True
        )
        lines = done.stdout.splitlines()
    except (OSError, subprocess.SubprocessError, UnicodeError):
        lines = []
    plain = lines if len(lines) == len(names) else names
    return [name if len(name) <= MAX_NAME else name[: MAX_NAME - 3] + "..." for name in plain]


def main(arguments: list[str]) -> None:
    cuobjdump, nvdisasm, library, answer, seconds = arguments
    reader = Reader(cuobjdump, nvdisasm, time.monotonic() + float(seconds))
    found = reader.read(Path(library))
    # Several units can contain the same template instance.
    unique = list({json.dumps(kernel): kernel for kernel in found}.values())
    unique.sort(key=lambda k: (-k.pop("code_bytes"), k["name"], k["architecture"]))
    kept = unique[:MAX_KERNELS]
    for kernel, name in zip(kept, demangled([k["name"] for k in kept]), strict=True):
        kernel["name"] = name
    Path(answer).write_text(json.dumps({"kernels": kept, "found": len(unique), "notes": reader.notes[:8]}))


if __name__ == "__main__":
    main(sys.argv[1:])
