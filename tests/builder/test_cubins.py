"""Reading cubins: the classes of instructions, spills, and resource figures of a hand-made ELF file."""

from __future__ import annotations

import random
import struct
import sys
import time
from pathlib import Path

import pytest

from harness.builder.cubins import CLASSES, Cubin, Reader, count_instructions
from harness.builder.cubins import instruction_class as class_of

_OPCODES = """
    HGMMA.64x256x16.F32.BF16 HGMMA  QGMMA.64x128x32.F32.E4M3.E4M3 QGMMA  HMMA.16816.F32.BF16 HMMA
    UTMALDG.3D TMA  LDGSTS.E.BYPASS.LTC128B.128 LDGSTS  LDG.E LDG.32  LDG.E.U8.CONSTANT LDG.8
    LDG.E.LTC128B.64.CONSTANT LDG.64  STG.E.EF.128 STG.128
    LD.E.128 LD  LDSM.16.MT88.4 LDSM  LDL.LU.64 LDL  REDG.E.ADD.F32.FTZ.RN.STRONG.GPU ATOM
    ATOMS.ADD ATOM  SYNCS.ARRIVE.TRANS64.A1T0 SYNCS  BAR.SYNC.DEFER_BLOCKING BAR  DADD DFMA
    MUFU.EX2 MUFU  IMAD.WIDE.U32 other  SOMETHING_NEW other
"""
OPCODES = _OPCODES.split()


@pytest.mark.parametrize(("opcode", "expected"), list(zip(OPCODES[::2], OPCODES[1::2], strict=True)))
def test_every_opcode_has_one_class(opcode, expected):
    """Modifiers decide widths and nothing else; what is unknown is `other`."""
    assert class_of(opcode, " R0, R1, R2 ") == expected
    assert expected in CLASSES


def test_moves_and_conversions_on_the_half_pipe_are_no_arithmetic():
    """ptxas writes constants as -0 * 0 + c, and widens halves by adding -0."""
    assert class_of("HFMA2.MMA", " R9, -RZ, RZ, 1.875, 0 ") == "other"
    assert class_of("HADD2.F32", " R0, -RZ, R6.H0_H0 ") == "other"
    assert class_of("HFMA2.MMA", " R7, R0, R7, R6 ") == "HFMA2"
    assert class_of("HADD2", "") == "HFMA2"


# As nvdisasm 13.2 prints with -c -ndf.
SASS = """\
        .target sm_90a
//--------------------- .text._Z1aPf          --------------------------
\t.section\t.text._Z1aPf,"ax",@progbits
        .global         _Z1aPf
_Z1aPf:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128 R8, desc[UR6][R2.64] ;
        /*0020*/                   STL.64 [R1+0x8], R4 ;
        /*0030*/                   STL [R1], R4 ;
        /*0040*/               @P1 LDL.LU R5, [R1] ;
.L_x_1:
        /*0050*/              @UP2 BRA `(.L_x_1);
        /*0060*/                   NOP;
        /*10000*/                  EXIT ;
\t.section\t.text._Z1bPf,"ax",@progbits
        /*0000*/                   HGMMA.64x8x16.F32.BF16 R24, gdesc[UR8], RZ, !UPT, gsb0 ;
"""


def test_instructions_are_counted_per_kernel():
    """Predicates, labels and NOPs do not matter; local accesses are spills only where they are marked."""
    programs = count_instructions(SASS.splitlines(), {"_Z1aPf": frozenset({0x20, 0x40})})
    assert programs["_Z1aPf"].counts == {"LDG.128": 1, "STL": 2, "LDL": 1, "other": 3, "all": 7}
    assert programs["_Z1bPf"].counts == {"HGMMA": 1, "all": 1}
    assert (programs["_Z1aPf"].stored, programs["_Z1aPf"].loaded) == (8, 4)


def elf(*, stack: int = 0, shared: int = 0, spills: bytes = b"", tool: str = "13.0") -> bytes:
    """A cubin with the kernel `k` (77 registers) and the device function `f`."""
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    symbols += struct.pack("<IBBHQQ", 1, 0x12, 0x10, 0, 0, 640) + struct.pack("<IBBHQQ", 3, 0x12, 0, 0, 0, 9)
    info = b"".join(
        struct.pack("<BBHII", 4, code, 8, 1, value) for code, value in ((0x2F, 77), (0x11, stack), (0x12, 0))
    )
    own = struct.pack("<BBH", 3, 0x1B, 255) + (spills and struct.pack("<BBH", 4, 0x55, len(spills)) + spills)
    note = f"Cuda compilation tools, release {tool}, V{tool}.88".encode()
    contents = {
        "": b"",
        ".shstrtab": b"",
        ".strtab": b"\0k\0f\0",
        ".symtab": symbols,
        ".note.nv.tkinfo": note,
        ".nv.info": info,
        ".nv.info.k": own,
        ".nv.shared.k": b"\0" * shared,
    }
    names = b"".join(name.encode() + b"\0" for name in contents)
    contents[".shstrtab"] = names
    body, headers, at, label = b"", b"", 64, 0
    for name, data in contents.items():
        kind = 2 if name == ".symtab" else 1
        headers += struct.pack("<IIQQQQIIQQ", label, kind, 0, 0, at, len(data), 2, 0, 1, 0)
        body, at, label = body + data, at + len(data), label + len(name) + 1
    head = b"\x7fELF\x02\x01".ljust(0x28, b"\0") + struct.pack(
        "<QIHHHHHH", at, 0, 64, 0, 0, 64, len(contents), 1
    )
    return head.ljust(64, b"\0") + body + headers


def only_kernel(data: bytes, architecture: str = "sm_90"):
    """The one entry function."""
    (kernel,) = Cubin(data, architecture).kernels()
    return kernel


def test_figures_come_from_the_cubin():
    """Registers, stack and static shared memory of entry functions; a device function is none."""
    kernel = only_kernel(elf(stack=456, shared=5120))
    assert (kernel.name, kernel.registers, kernel.stack_bytes, kernel.code_bytes) == ("k", 77, 456, 640)
    assert kernel.shared_bytes == 4096, "the first KiB is the system's on sm_90"
    assert only_kernel(elf(shared=4096), "sm_80").shared_bytes == 4096
    assert only_kernel(elf(stack=0xFFFFFFFF)).stack_bytes == 0


def test_spills_that_no_compiler_marks_are_unknown():
    """An older compiler's silence is not a zero; an unknown kind of mark hides what follows it."""
    marks = struct.pack("<IIII", 1, 0x400, 1, 0x410)
    assert only_kernel(elf(spills=marks)).spills == {0x400, 0x410}
    assert only_kernel(elf()).spills == frozenset()
    assert only_kernel(elf(tool="12.2")).spills is None
    assert only_kernel(elf(spills=struct.pack("<IIII", 1, 0x400, 7, 7))).spills is None


def test_damaged_cubins_are_refused_not_fatal(tmp_path):
    """Every flipped byte gives kernels or one of the errors that the reader expects."""
    whole = elf(stack=8, shared=2048, spills=struct.pack("<II", 1, 16))
    dice = random.Random(0)
    reader = Reader("/nonexistent", "/bin/false", time.monotonic() + 30.0)
    for _ in range(3_000):
        data = bytearray(whole[: dice.choice([len(whole), dice.randrange(len(whole))])])
        for _ in range(3):
            if data:
                data[dice.randrange(len(data))] = dice.randrange(256)
        try:
            list(Cubin(bytes(data), "sm_90").kernels())
        except (ValueError, struct.error, IndexError, OverflowError):
            continue
    path = tmp_path / "x.1.sm_90.cubin"
    path.write_bytes(whole[:100])
    assert reader._read_cubin(path) == [] and "could not be read" in reader.notes[0]


def tool(path: Path, text: str) -> str:
    """A program that pretends to be one of NVIDIA's."""
    path.write_text(f"#!{sys.executable}\nimport sys, pathlib\n{text}")
    path.chmod(0o755)
    return str(path)


def test_what_could_not_be_disassembled_keeps_its_other_figures(tmp_path):
    """A failing nvdisasm, or no time left, leaves the counts unknown and says so."""
    data = tmp_path / "data"
    data.write_bytes(elf(stack=8, spills=struct.pack("<II", 1, 16)))
    copy = f"pathlib.Path('x.1.sm_90a.cubin').write_bytes(pathlib.Path({str(data)!r}).read_bytes())"
    cuobjdump = tool(tmp_path / "cuobjdump", copy)
    listing = '.section .text.k,"ax"\n/*0010*/ STL.128 [R1], R4 ;'
    good = tool(tmp_path / "nvdisasm", f"print({listing!r})")
    bad = tool(tmp_path / "failing", "sys.exit(3)")
    found = {}
    for name, nvdisasm, seconds in (("good", good, 60.0), ("bad", bad, 60.0), ("late", good, -1.0)):
        folder = tmp_path / f"run-{name}"
        folder.mkdir()
        reader = Reader(cuobjdump, nvdisasm, time.monotonic() + seconds)
        found[name] = (reader.read(folder / "library.so")[0], reader.notes)
    assert found["good"][0]["instructions"] == {"STL": 1, "all": 1} and found["good"][1] == []
    assert found["good"][0]["spill_store_bytes"] == 16 and found["good"][0]["architecture"] == "sm_90a"
    for name, why in (("bad", "failed (3)"), ("late", "out of time")):
        kernel, notes = found[name]
        assert kernel["registers"] == 77 and kernel["instructions"] is None
        assert kernel["spill_store_bytes"] is None and why in notes[0]
