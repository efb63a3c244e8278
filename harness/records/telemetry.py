"""Records of what the machine was doing while something was timed."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from harness.records.base import Record


class GpuSample(Record):
    """One look at the GPU that is timed; None is what it does not tell."""

    sm_mhz: int | None
    memory_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    held_down_by: tuple[str, ...] | None
    """What keeps its clocks below their maximum, in NVML's terms; empty is nothing."""
    processes: int | None
    """With a compute context."""


class TelemetrySample(Record):
    """One look at the machine; None is unknown."""

    at_s: float
    """Monotonic clock."""
    cores: int
    runnable: int | None
    """Threads that run or want to, on the whole machine, the one that looked included."""
    load_1m: float | None
    cpu_mhz: float | None
    """Mean over the cores, as the kernel gives it; a virtual machine often has a constant there."""
    steal_s: float | None
    """Since boot, all cores: time in which the hypervisor ran something else."""
    cpu_wait_s: float | None
    """Since boot: time in which some thread waited for a core (pressure stall information)."""
    interrupts: int | None = None
    """Since boot, all cores, local timers included."""
    softirqs: int | None = None
    """Since boot, all cores."""
    gpu: GpuSample | None = None
    """None on the CPU target, and without NVML."""


class Extent(Record):
    """The lowest and the highest figure seen."""

    low: float
    high: float

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"{self.low} is above {self.high}")
        return self


class BlockTelemetry(Record):
    """One ABBA block, looked at before and after every turn; None is unknown."""

    block: int
    disturbed: tuple[str, ...]
    """Why the block does not count; empty where it does."""
    runnable_most: int | None
    steal_s: float | None
    """Within the block."""
    cpu_wait_s: float | None
    """Within the block; not a reason to drop it, since the timed process can cause it."""
    cpu_mhz: Extent | None
    sm_mhz: Extent | None = None
    memory_mhz: Extent | None = None
    power_w: Extent | None = None
    temperature_c: Extent | None = None
    held_down_by: tuple[str, ...] | None = None
