"""Compiled kernels in words: short names, memory, and the instructions worth naming.

What was not measured says so; a share is of the instructions in the code, not of executions.
"""

from __future__ import annotations

from harness.builder.binary.cubins import CLASSES
from harness.records import DeviceKernel
from harness.report.figures import NOT_MEASURED, percent
from harness.text import clean, shorten

_NAME_CHARS = 48
# Tensor cores, asynchronous copies, then what costs: in the order in which they are named.
_NAMED = (
    "HGMMA", "QGMMA", "IGMMA", "BGMMA", "HMMA", "QMMA", "IMMA", "BMMA", "DMMA",
    "TMA", "LDGSTS", "LDSM", "STSM", "ATOM", "DFMA", "LDL", "STL",
)  # fmt: skip


def short_name(name: str) -> str:
    """`void (anonymous namespace)::f<float, 4>(float*)` -> `f<float, 4>`."""
    text = clean(name).replace("(anonymous namespace)::", "")
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "<") - (char == ">")
        if char == "(" and depth == 0 and position > 0:
            text = text[:position]
            break
    return shorten(text.removeprefix("void "), _NAME_CHARS)


def spills(kernel: DeviceKernel) -> str:
    """Bytes stored / loaded per thread: `656 / 772 B`, or `none`."""
    stored, loaded = kernel.spill_store_bytes, kernel.spill_load_bytes
    if stored is None or loaded is None:
        return NOT_MEASURED
    return f"{stored} / {loaded} B" if stored or loaded else "none"


def _share_128(counts: dict[str, int], opcode: str) -> list[str]:
    total = sum(n for name, n in counts.items() if name.startswith(f"{opcode}."))
    return [f"{opcode}.128 {percent(counts.get(f'{opcode}.128', 0) / total)}"] if total else []


def notable(kernel: DeviceKernel) -> str:
    """Such as `HGMMA 12, TMA 8, LDG.128 75%`: the share of global loads that are 128 bits wide."""
    counts = kernel.instructions
    if counts is None:
        return NOT_MEASURED
    named = [f"{name} {counts[name]}" for name in _NAMED if counts.get(name)]
    return ", ".join([*named, *_share_128(counts, "LDG"), *_share_128(counts, "STG")])


def total(kernel: DeviceKernel) -> str:
    """The number of instructions."""
    return NOT_MEASURED if kernel.instructions is None else str(kernel.instructions.get("all", 0))


def all_counts(kernel: DeviceKernel) -> str:
    """Every class that occurs, in the order of CLASSES."""
    counts = kernel.instructions or {}
    return ", ".join(f"{name} {counts[name]}" for name in CLASSES if counts.get(name))
