"""The PTX instructions that the emulated GPU implements, by group of the manual.

- arithmetic.txt: integers (9.7.1, 9.7.2), floating point (9.7.3 to 9.7.5), comparison, logic and conversion.
  Basic operations are exact to the bit in every rounding mode. Approximate ones return a value that is
  rounded correctly or nearly so; hardware differs from it within the error bounds of the manual. `carry` is
  the thread's condition code register, CC.CF.
- memory.txt: data movement (9.7.9), atomics and mbarrier (9.7.13). Hints of caches and priorities change
  nothing that a program computes.
- threads.txt: control flow (9.7.12), synchronization (9.7.13), matrices of a warp (9.7.14) and of a warp
  group (9.7.15), and the rest (9.7.19). The stride s of wmma is that of a dense matrix where it is left out.
  Of wgmma i and j are -1 where A or B is negated, x and y 1 where it is transposed.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from harness.device.emulated.instructions.rows import Row, Slots, groups

_HERE = Path(__file__).parent
GROUPS = {
    name: rows
    for file in ("arithmetic", "memory", "threads")
    for name, rows in groups((_HERE / f"{file}.txt").read_text()).items()
}


@cache
def find(mnemonic: str) -> list[tuple[Row, Slots]]:
    """Rows whose syntax fits the mnemonic, and the words that stand in their slots."""
    found = ((row, row.matches(mnemonic)) for rows in GROUPS.values() for row in rows)
    return [(row, slots) for row, slots in found if slots is not None]
