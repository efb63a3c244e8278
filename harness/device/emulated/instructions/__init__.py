"""The PTX instructions that the emulated GPU implements, by group of the manual."""

from __future__ import annotations

from functools import cache

from harness.device.emulated.instructions import arithmetic, memory, threads
from harness.device.emulated.instructions.rows import Row, Slots, groups

GROUPS = groups(arithmetic.TABLES) | groups(memory.TABLES) | groups(threads.TABLES)


@cache
def find(mnemonic: str) -> list[tuple[Row, Slots]]:
    """Rows whose syntax fits the mnemonic, and the words that stand in their slots."""
    found = ((row, row.matches(mnemonic)) for rows in GROUPS.values() for row in rows)
    return [(row, slots) for row, slots in found if slots is not None]
