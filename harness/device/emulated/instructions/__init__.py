"""Tables of the PTX instructions that the emulated GPU implements, by group of the manual."""

from __future__ import annotations

from harness.device.emulated.instructions import asynchronous, control, floating, integer, matrix, movement
from harness.device.emulated.instructions.rows import Row, Table

GROUPS: dict[str, list[Row]] = {
    "Integer arithmetic": integer.INTEGER,
    "Arithmetic with carry": integer.CARRY,
    "Logic and shifts": integer.LOGIC,
    "Floating point": floating.FLOATING,
    "Comparison and selection": floating.COMPARISON,
    "Data movement": movement.MOVEMENT,
    "Conversion": movement.CONVERSION,
    "Control flow": control.CONTROL,
    "Synchronization": control.SYNCHRONIZATION,
    "Atomic operations": control.ATOMIC,
    "Warps": control.WARP,
    "mbarrier": asynchronous.MBARRIER,
    "Asynchronous copies": asynchronous.CP_ASYNC,
    "Bulk and tensor copies": asynchronous.BULK,
    "Matrices of a warp": matrix.WARP_MATRIX,
    "Matrices of a warp group": matrix.GROUP_MATRIX,
}
TABLE = Table(GROUPS.values())
