"""The error tolerance of each dtype.

tol_ij = f * (|truth_ij| + s_ij) + d / 2, where s_ij is the RMS of the truth's row or the task's own `scale`,
and d the distance of denormal numbers of the output's dtype: a correctly rounded output always passes. A
project passes if max |y - truth| / tol <= max(4 * the same figure of the PyTorch reference, 1); that bound
times f does not exceed `cap`, or PyTorch's own error where that is larger (at most 4 * `cap`). The factors
are our own and calibrated on the CPU target only; published harnesses use 1e-4 to 1e-5 for fp32 and 1e-2 for
16-bit types.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.records import Operand, Task
from harness.records.task import operand_dtype

REFERENCE_ERROR_FACTOR = 4.0
_BEYOND_CAP = 4.0
"""Of the cap: up to there a project may be as inaccurate as PyTorch's op, but not more."""
TILE = 64
TILE_FRACTION = 0.05
"""Largest fraction of elements of a tile that may be out of tolerance."""

_FLOAT32 = {"elementwise": 1e-5, "reduction": 1e-4, "contraction": 1e-4}
_TF32 = 1e-3
_HALF = {"float16": 1e-3, "bfloat16": 8e-3}
_CAP = {"float16": 1e-2, "bfloat16": 1.6e-2}
# Half a unit in the last place (2^-4 with 3 bits of mantissa, 2^-3 with 2) plus a tenth, because a correct
# kernel may round a value between two numbers the other way.
_FLOAT8 = {"float8_e4m3": 7e-2, "float8_e5m2": 1.4e-1}


@dataclass(frozen=True)
class Tolerance:
    """The tolerance of one output."""

    f: float
    """0 means exact equality."""
    cap: float = math.inf
    """Upper bound of f times the allowed error, unless PyTorch's op itself exceeds it."""
    matched: float = 1.0
    most: float = 1.0
    """No element may exceed this many times the allowed error."""

    def allowed(self, own_error: float) -> float:
        """The largest element error that passes, if the PyTorch reference has `own_error`."""
        if not math.isfinite(own_error) or self.f == 0:
            return 1.0
        cap = self.cap / self.f
        return max(min(REFERENCE_ERROR_FACTOR * own_error, cap), min(own_error, _BEYOND_CAP * cap), 1.0)


def factor(task: Task, dtype: str) -> float:
    """f for an output of `dtype`; 0 means exact equality. Raises ValueError for an unknown dtype."""
    if task.tolerance == "exact" or dtype.startswith(("int", "uint", "bool")):
        return 0.0
    if dtype in _HALF:
        return _HALF[dtype]
    if dtype == "float32":
        return _TF32 if task.precision == "tf32" else _FLOAT32[task.tolerance]
    for name, f in _FLOAT8.items():
        if dtype.startswith(name):
            return f
    raise ValueError(f"no tolerance is defined for dtype {dtype}")


def tolerance(task: Task, output: Operand, dtype: str) -> Tolerance:
    """The tolerance of `output` for a workload of `dtype`. Raises ValueError for an unknown dtype."""
    own = operand_dtype(output, dtype)
    f = factor(task, own)
    if f == 0:
        return Tolerance(f)
    if any(operand_dtype(o, dtype).startswith("float8") for o in task.operands if o.role != "out"):
        # Tensor cores sum fp8 products with fewer bits than fp32, so single elements may be off, not tiles.
        return Tolerance(f, _CAP.get(own, math.inf), matched=0.99, most=5.0)
    return Tolerance(f, _CAP.get(own, math.inf))
