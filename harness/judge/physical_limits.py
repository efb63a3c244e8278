"""Physical limits of a board, and what a figure that beats them means.

T_sol (speed of light) is what a very good kernel could reach. The floor, the only figure with a verdict, is
what no kernel can beat. An unknown board, dtype or count of operations gives no limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.judge.problem import Problem
from harness.outcome import Cause
from harness.records import Finding
from harness.records.timing import PhysicalLimit

ABOVE: Final = "above the limit"
SUSPICIOUS: Final = "suspiciously fast"
SUSPICIOUS_SPEEDUP: Final = 10.0  # TritonBench and KernelBench-Hard have a person review 10x
PROCESSES: Final = 3
"""Fresh processes that must all be below the floor before it is called a cheat."""

_LANES: Final[Mapping[str, str]] = {
    "complex64": "float32",
    **dict.fromkeys(("float16", "bfloat16"), "half"),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "int8", "uint8"), "eight"),
    **{name: name for name in ("float64", "float32", "tf32")},
}


@dataclass(frozen=True)
class Board:
    """A GPU by its datasheet; dense figures, no sparsity."""

    name: str
    peak_tflops: Mapping[str, float]
    """`float64`, `float32`, `tf32`, `half` (fp16, bf16), `eight` (fp8, int8)."""
    bandwidth_gb_s: float
    peak_clock_mhz: float
    max_clock_mhz: float
    l2_bytes: int

    def peak(self, dtype: str, *, highest: bool = False) -> float | None:
        """FLOP/s for work in `dtype` by the datasheet; None for a dtype that has no such figure. `highest`:
        that no honest kernel exceeds, since fp32 may be emulated on tensor cores, and clocks may boost."""
        lane = _LANES.get(dtype)
        if lane is None:
            return None
        if not highest:
            return self.peak_tflops[lane] * 1e12
        lane = "tf32" if lane == "float32" else lane
        return self.peak_tflops[lane] * 1e12 * max(1.0, self.max_clock_mhz / self.peak_clock_mhz)


# NVIDIA's H100 and H200 datasheets, dense. Clocks: 989.5e12 / (132 SMs x 4096) = 1830 MHz,
# 756e12 / (114 x 4096) = 1620 MHz; boost 1980 and 1755 MHz, at which the fp32 figures hold (132 x 256 x
# 1.98e9 = 67e12). L2: 50 MB; the driver of an H200 reports 60.
_SXM_TFLOPS: Final = {"float64": 67.0, "float32": 67.0, "tf32": 494.7, "half": 989.5, "eight": 1979.0}
_PCIE_TFLOPS: Final = {"float64": 51.0, "float32": 51.0, "tf32": 378.0, "half": 756.0, "eight": 1513.0}
BOARDS: Final[Mapping[str, Board]] = {
    "NVIDIA H100 80GB HBM3": Board("H100 SXM", _SXM_TFLOPS, 3350.0, 1830.0, 1980.0, l2_bytes=50 << 20),
    "NVIDIA H100 PCIe": Board("H100 PCIe", _PCIE_TFLOPS, 2039.0, 1620.0, 1755.0, l2_bytes=50 << 20),
    "NVIDIA H200": Board("H200 SXM", _SXM_TFLOPS, 4800.0, 1830.0, 1980.0, l2_bytes=60 << 20),
}
"""By the name that NVML gives; "H100 NVL", "H200 NVL" and "GH200" are other boards."""


@dataclass(frozen=True)
class Work:
    dtype: str
    """That the fastest arithmetic may have."""
    flops: int | None
    unique_bytes: int
    """Of all operands, each counted once (twice where read and written)."""
    cold_read_bytes: int
    """Bytes that any correct answer must read, and that no cache holds before the call."""


def board_of(gpu: str | None, device: str | None) -> Board | None:
    """The board with that NVML name; None for an unknown one, without a GPU, and for a MIG part."""
    if gpu is None or device is None or device.startswith("MIG-"):
        return None
    return BOARDS.get(gpu.strip())


def work_of(problem: Problem) -> Work:
    """The work of a workload, in the fastest dtype among those read and that of the workload: products of fp8
    operands run on fp8 tensor cores whatever the output's dtype. Reads are unavoidable only where the task
    counts its operations and no integer or boolean operand (index, mask, length) can select elements."""
    selecting = any(
        not problem.operand_dtype(o).is_floating_point for o in problem.task.operands if o.role != "out"
    )
    read = [o for o in problem.task.operands if o.role in ("in", "inout")]
    cold = sum(math.prod(problem.shape(o)) * problem.operand_dtype(o).itemsize for o in read)
    unavoidable = problem.flops is not None and not selecting
    dtype = "tf32" if problem.task.precision == "tf32" else problem.dtype
    given = (str(problem.operand_dtype(o)).removeprefix("torch.") for o in read)
    fastest = max((dtype, *given), key=lambda name: _SXM_TFLOPS.get(_LANES.get(name, ""), 0.0))
    return Work(fastest, problem.flops, problem.bytes_moved, cold if unavoidable else 0)


def _seconds_us(amount: float, per_second: float | None) -> float:
    return 0.0 if per_second is None else amount / per_second * 1e6


def speed_of_light(work: Work, board: Board) -> dict[str, float]:
    """Microseconds that each resource needs by the datasheet: `compute`, `memory`."""
    return {
        "compute": _seconds_us(work.flops or 0, board.peak(work.dtype)),
        "memory": _seconds_us(work.unique_bytes, board.bandwidth_gb_s * 1e9),
    }


def floor_us(work: Work, board: Board) -> float:
    compute = _seconds_us(work.flops or 0, board.peak(work.dtype, highest=True))
    cold = max(0, work.cold_read_bytes - board.l2_bytes)
    return max(compute, _seconds_us(cold, board.bandwidth_gb_s * 1e9))


def judge_physics(
    time_us: float, reference_us: float, work: Work, board: Board | None
) -> PhysicalLimit | None:
    """Compare a student's figure with the board and the fastest reference; None where the limit is not
    known."""
    if board is None:
        return None
    needs = speed_of_light(work, board)
    bound_by = max(needs, key=lambda name: needs[name])
    limit = needs[bound_by]
    if limit <= 0:
        return None
    room = reference_us - limit
    flags = {ABOVE: time_us < limit, SUSPICIOUS: reference_us / time_us > SUSPICIOUS_SPEEDUP}
    return PhysicalLimit(
        board=board.name,
        time_us=time_us,
        limit_us=limit,
        bound_by=bound_by,  # type: ignore[arg-type]
        fraction=limit / time_us,
        # SOL-ExecBench's S: 0.5 at the reference, 1 at the limit.
        score=None if room <= 0 else 1.0 / (1.0 + max(0.0, time_us - limit) / room),
        floor_us=floor_us(work, board),
        flags=tuple(name for name, true in flags.items() if true),
    )


def impossible(label: str, seen: Sequence[PhysicalLimit]) -> Finding | None:
    """The finding where the figures of at least 3 fresh processes are all below the floor."""
    if len(seen) < PROCESSES or not all(one.impossible for one in seen):
        return None
    fastest = min(seen, key=lambda one: one.time_us)
    message = (
        f"{label}: {fastest.time_us:.2f} us a call; no correct answer takes less than "
        f"{fastest.floor_us:.2f} us on an {fastest.board}, in {len(seen)} of {len(seen)} fresh processes"
    )
    return Finding(cause=Cause.PHYSICS, message=message)
