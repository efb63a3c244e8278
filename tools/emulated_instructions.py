"""Writes docs/generated/emulated_instructions.md: `python -m tools.emulated_instructions`.

The tables are those from which the emulated GPU translates; what they lack is refused by name.
"""

from __future__ import annotations

from pathlib import Path

from harness.device.emulated.instructions import GROUPS
from harness.device.emulated.instructions.rows import Row
from harness.files import write_atomically

PAGE = Path(__file__).resolve().parent.parent / "docs/generated/emulated_instructions.md"
_MOST_WORDS = 16
_HEAD = """# Instructions of the emulated GPU

Made by `python -m tools.emulated_instructions` from the tables of the translator. Sections are those of the
PTX ISA manual, version 9.0. A word with `?` may be left out; an upper-case name stands for one of its words.
Every other instruction or form is `cannot_emulate`, and the error has the whole statement, the kernel and the
line; the examples below each table are tested.
"""
REFUSED = {
    "Integer arithmetic": ("add.fast.s32",),
    "Floating point": ("add.rn.f32.f16", "fma.rn.oob.f16", "tanh.approx.f64"),
    "Data movement": (
        "ld.global.b8.v16",
        "st.async.shared::cluster.b32",
        "multimem.ld_reduce.global.add.f32",
    ),
    "Conversion": ("cvt.rn.satfinite.e2m1x2.f32", "cvt.rs.f16x2.f32"),
    "Control flow": ("tex.1d.v4.f32.s32", "suld.b.1d.b32.trap", "istypep.texref"),
    "Synchronization": ("fence.proxy.tensormap::generic.release.gpu",),
    "Atomic operations": ("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32",),
    "Warps": ("shfl.up.b32", "vote.ballot.b32"),
    "Bulk and tensor copies": (
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes",
        "tensormap.replace.tile.global_address.global.b1024.b64",
    ),
    "Matrices of a warp": (
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    ),
    "Matrices of a warp group": ("wgmma.mma_async.sp.sync.aligned.m64n128k32.f32.f16.f16", "tcgen05.mma"),
}
"""By group: instructions that are not implemented, as examples."""


def page() -> str:
    """The page: a table per group of instructions."""
    parts = [_HEAD]
    for group, rows in GROUPS.items():
        lines = [
            f"## {group}\n",
            "| section | instruction | words |",
            "|---|---|---|",
            *dict.fromkeys(map(_line, rows)),
        ]
        if group in REFUSED:
            lines += ["", f"Not implemented, for example: {', '.join(f'`{one}`' for one in REFUSED[group])}."]
        parts.append("\n".join([*lines, ""]))
    return "\n".join(parts)


def _line(row: Row) -> str:
    slots = dict.fromkeys(token.rstrip("?") for token in row.syntax.split("."))
    words = "; ".join(f"{name}: {_listed(row.words[name].split())}" for name in slots if name in row.words)
    return f"| {row.section} | `{row.syntax}` | {words} |"


def _listed(words: list[str]) -> str:
    if len(words) > _MOST_WORDS:
        words = [words[0], words[1], "...", words[-1]]
    return " ".join(words)


if __name__ == "__main__":
    write_atomically(PAGE, page())
    print(PAGE.name)
