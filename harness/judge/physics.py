"""What a board can do at most, and what a figure that beats it means.

An unknown board, dtype or count of operations gives no limit, never a guessed one; the floor is never above
T_sol.

T_sol is what a very good kernel could reach, and is shown. The floor is what no kernel can beat, and is the
only figure here with a verdict: it leaves out whatever an honest kernel might avoid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from harness.outcome import Cause
from harness.records import Finding
from harness.records.evidence import PhysicalLimit

if TYPE_CHECKING:
    from harness.judge.problem import Problem

ABOVE: Final = "above the limit"
SUSPICIOUS: Final = "suspiciously fast"
SUSPICIOUS_SPEEDUP: Final = 10.0  # TritonBench and KernelBench-Hard send 10x to a person
PROCESSES: Final = 3
"""Fresh processes that must all be below the floor before it is called a cheat."""

_LANES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "float64": "float64",
        "float32": "float32",
        "tf32": "tf32",
        "complex64": "float32",
        "float16": "half",
        "bfloat16": "half",
        "float8_e4m3fn": "eight",
        "float8_e5m2": "eight",
        "int8": "eight",
        "uint8": "eight",
    }
)


@dataclass(frozen=True)
class Board:
    """A GPU by its datasheet; dense figures, no sparsity."""

    name: str
    peak_tflops: Mapping[str, float]
    """`float64`, `float32`, `tf32`, `half` (fp16, bf16), `eight` (fp8, int8)."""
    bandwidth_gb_s: float
    peak_clock_mhz: float
    """SM clock at which the tensor figures hold: peak / (SMs x operations per clock)."""
    max_clock_mhz: float
    """Highest SM clock that the board runs at."""
    l2_bytes: int

    def peak(self, dtype: str) -> float | None:
        """FLOP/s for work in `dtype`, by the datasheet; None for a dtype that has no such figure."""
        lane = _LANES.get(dtype)
        return None if lane is None else self.peak_tflops[lane] * 1e12

    def highest_peak(self, dtype: str) -> float | None:
        """FLOP/s that no honest kernel exceeds: fp32 may be emulated on tensor cores, clocks may boost."""
        lane = _LANES.get(dtype)
        if lane is None:
            return None
        lane = "tf32" if lane == "float32" else lane
        return self.peak_tflops[lane] * 1e12 * max(1.0, self.max_clock_mhz / self.peak_clock_mhz)


# NVIDIA's H100 and H200 datasheets, dense (protocols.md). Clocks: 989.5e12 / (132 SMs x 4096) = 1830 MHz,
# 756e12 / (114 x 4096) = 1620 MHz; boost 1980 and 1755 MHz, at which the fp32 figures hold (132 x 256 x
# 1.98e9 = 67e12). L2: 50 MB; the driver of an H200 reports 60.
_SXM_TFLOPS: Final = {"float64": 67.0, "float32": 67.0, "tf32": 494.7, "half": 989.5, "eight": 1979.0}
_PCIE_TFLOPS: Final = {"float64": 51.0, "float32": 51.0, "tf32": 378.0, "half": 756.0, "eight": 1513.0}
_H100_SXM: Final = Board("H100 SXM", MappingProxyType(_SXM_TFLOPS), 3350.0, 1830.0, 1980.0, l2_bytes=50 << 20)
_H100_PCIE: Final = Board(
    "H100 PCIe", MappingProxyType(_PCIE_TFLOPS), 2039.0, 1620.0, 1755.0, l2_bytes=50 << 20
)
_H200_SXM: Final = Board("H200 SXM", MappingProxyType(_SXM_TFLOPS), 4800.0, 1830.0, 1980.0, l2_bytes=60 << 20)
BOARDS: Final[Mapping[str, Board]] = MappingProxyType(
    {
        "NVIDIA H100 80GB HBM3": _H100_SXM,
        "NVIDIA H100 PCIe": _H100_PCIE,
        "NVIDIA H200": _H200_SXM,
    }
)
"""By the name that NVML gives; "H100 NVL", "H200 NVL" and "GH200" are other boards."""


@dataclass(frozen=True)
class Work:
    """What one call has to do at least."""

    dtype: str
    flops: int | None
    """Operations as the task counts them, the least that any algorithm needs; None where it does not."""
    unique_bytes: int
    """Of all operands, each counted once (twice where read and written)."""
    cold_read_bytes: int
    """That any correct answer must read, and that no cache holds before the call."""


@dataclass(frozen=True)
class Ceilings:
    """What this board was measured to do in this session (gpu-check)."""

    copy_gb_s: float
    """Read and written bytes of the largest copy per second."""
    matmul_tflops: Mapping[str, float]
    """Best library matmul, by dtype name."""
    null_kernel_us: float
    """An empty kernel."""


def board_of(gpu: str | None, device: str | None) -> Board | None:
    """The board with that NVML name; None for one that is not in the table, without a GPU, and for a part
    of one (`device` is a UUID)."""
    if gpu is None or device is None or device.startswith("MIG-"):
        return None
    return BOARDS.get(gpu.strip())


def work_of(problem: Problem) -> Work:
    """What a task's workload has to do.

    Reads count as unavoidable only where the task counts its operations (its author has thought of every
    element) and no integer or boolean operand can say which elements matter (indices, masks, lengths).
    """
    selecting = any(
        not problem.operand_dtype(o).is_floating_point for o in problem.task.operands if o.role != "out"
    )
    cold = 0
    if problem.flops is not None and not selecting:
        for operand in problem.task.operands:
            if operand.role in ("in", "inout"):
                cold += math.prod(problem.shape(operand)) * problem.operand_dtype(operand).itemsize
    return Work(
        dtype="tf32" if problem.task.precision == "tf32" else problem.dtype,
        flops=problem.flops,
        unique_bytes=problem.bytes_moved,
        cold_read_bytes=cold,
    )


def _seconds_us(amount: float, per_second: float | None) -> float:
    return 0.0 if per_second is None else amount / per_second * 1e6


def speed_of_light(work: Work, board: Board, ceilings: Ceilings | None = None) -> dict[str, float]:
    """Microseconds that each resource needs by the datasheet: `compute`, `memory`, `launch`.

    No datasheet has a launch floor: it is 0 unless it was measured.
    """
    return {
        "compute": _seconds_us(work.flops or 0, board.peak(work.dtype)),
        "memory": _seconds_us(work.unique_bytes, board.bandwidth_gb_s * 1e9),
        "launch": 0.0 if ceilings is None else ceilings.null_kernel_us,
    }


def measured_limit_us(work: Work, ceilings: Ceilings) -> float:
    """T_sol with the ceilings measured in this session."""
    peak = ceilings.matmul_tflops.get(work.dtype)
    compute = _seconds_us(work.flops or 0, None if peak is None else peak * 1e12)
    memory = _seconds_us(work.unique_bytes, ceilings.copy_gb_s * 1e9)
    return max(compute, memory, ceilings.null_kernel_us)


def floor_us(work: Work, board: Board) -> float:
    """Less than this no correct answer can take. Outputs do not count: L2 absorbs them."""
    compute = _seconds_us(work.flops or 0, board.highest_peak(work.dtype))
    cold = max(0, work.cold_read_bytes - board.l2_bytes)
    return max(compute, _seconds_us(cold, board.bandwidth_gb_s * 1e9))


def sol_score(time_us: float, reference_us: float, limit_us: float) -> float | None:
    """SOL-ExecBench's S, in (0, 1]: 0.5 at the reference, 1 at the limit or beyond.

    None where the reference is no slower than the limit: there is nothing to gain.
    """
    room = reference_us - limit_us
    return None if room <= 0 else 1.0 / (1.0 + max(0.0, time_us - limit_us) / room)


def judge_physics(
    time_us: float,
    reference_us: float,
    work: Work,
    board: Board | None,
    ceilings: Ceilings | None = None,
) -> PhysicalLimit | None:
    """Compare a student's figure with the board; None where the limit is not known, or zero.

    `reference_us` is the fastest reference's figure. Both are above 0.
    """
    if board is None:
        return None
    needs = speed_of_light(work, board, ceilings)
    bound_by = max(needs, key=lambda name: needs[name])
    limit = needs[bound_by]
    if limit <= 0:
        return None
    flags = {ABOVE: time_us < limit, SUSPICIOUS: reference_us / time_us > SUSPICIOUS_SPEEDUP}
    return PhysicalLimit(
        board=board.name,
        time_us=time_us,
        limit_us=limit,
        bound_by=bound_by,  # type: ignore[arg-type]
        fraction=limit / time_us,
        measured_limit_us=None if ceilings is None else measured_limit_us(work, ceilings),
        score=sol_score(time_us, reference_us, limit),
        floor_us=floor_us(work, board),
        flags=tuple(name for name, true in flags.items() if true),
    )


def impossible(label: str, seen: Sequence[PhysicalLimit]) -> Finding | None:
    """The finding on figures of fresh processes of one project on one workload, one each.

    Only where there are at least 3 and every one is below the floor.
    """
    if len(seen) < PROCESSES or not all(one.impossible for one in seen):
        return None
    fastest = min(seen, key=lambda one: one.time_us)
    return Finding(
        cause=Cause.PHYSICS,
        message=f"{label}: {fastest.time_us:.2f} us a call; no correct answer takes less than "
        f"{fastest.floor_us:.2f} us on an {fastest.board}, in {len(seen)} of {len(seen)} fresh processes",
    )
