"""How much error is allowed: the numbers, without the arithmetic (judge/compare.py has that).

Owns: the factor f per dtype and kind of task. Does not own: truth, comparison, verdict.
Invariant: tol_ij = f * (|truth_ij| + s_ij), s_ij the RMS of the truth's row; a project passes when
max |y - truth| / tol <= max(4 * the same figure of the PyTorch reference, 1).

The factors are this project's own (docs/protocols.md); published harnesses use 1e-4 to 1e-5 for
fp32 and 1e-2 for 16-bit types. They are calibrated on the CPU target only.
"""

from __future__ import annotations

from harness.records import Task

REFERENCE_ERROR_FACTOR = 4.0
TILE = 64
"""Side of the tiles of the tile test."""
TILE_FRACTION = 0.05
"""No tile may have more than this fraction of elements out of tolerance."""

_FLOAT32 = {"elementwise": 1e-5, "reduction": 1e-4, "contraction": 1e-4}
_HALF = {"float16": 1e-3, "bfloat16": 8e-3}


def factor(task: Task, dtype: str) -> float:
    """f for an output of `dtype`; 0 means exact equality. Raises ValueError for an unknown dtype."""
    if task.tolerance == "exact" or dtype.startswith(("int", "uint", "bool")):
        return 0.0
    if dtype in _HALF:
        return _HALF[dtype]
    if dtype == "float32":
        return _FLOAT32[task.tolerance]
    raise ValueError(f"no tolerance is defined for dtype {dtype}")
