"""Records of timing: lanes and ratios, host telemetry, and calibration of the clock."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from harness.records.base import SCHEMA_VERSION, ClockName, LaneName, Protocol, Record
from harness.records.evidence import PhysicalLimit
from harness.records.project import Finding


class GpuSample(Record):
    """One reading of the timed GPU; None is what NVML does not report."""

    sm_mhz: int | None
    memory_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    held_down_by: tuple[str, ...] | None
    """NVML's reasons for clocks below their maximum; empty means none."""
    processes: int | None
    """Processes with a compute context."""


class TelemetrySample(Record):
    """One reading of the machine; None is unknown."""

    at_s: float
    """Monotonic clock."""
    cores: int
    runnable: int | None
    """Runnable threads on the whole machine, the sampling one included."""
    load_1m: float | None
    cpu_mhz: float | None
    """Mean over the cores, as the kernel reports it; often a constant on virtual machines."""
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
    """Lowest and highest value seen."""

    low: float
    high: float

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"{self.low} is above {self.high}")
        return self


class BlockTelemetry(Record):
    """The machine during one ABBA block, sampled before and after every turn; None is unknown."""

    block: int
    disturbed: tuple[str, ...]
    """Why the block is dropped; empty where it counts."""
    runnable_most: int | None
    steal_s: float | None
    """Within the block."""
    cpu_wait_s: float | None
    """Within the block; no reason to drop it, since the timed process can cause it."""
    cpu_mhz: Extent | None
    sm_mhz: Extent | None = None
    memory_mhz: Extent | None = None
    power_w: Extent | None = None
    temperature_c: Extent | None = None
    held_down_by: tuple[str, ...] | None = None


class Spread(Record):
    """A distribution of durations."""

    n: int
    mean_us: float
    median_us: float
    q1_us: float
    q3_us: float


class Lane(Record):
    """One timing mode of one contender, by the worker's clock and by the judge's, over the same calls."""

    name: LaneName
    calls: int
    inside: Spread
    """By the worker's clock: forgeable where the worker runs a student's code."""
    outside_us: float
    """Judge's total / calls, less the null project's constant; for references also less the copy of results
    into the judge's buffers."""
    constant_us: float
    """Per call, for the null project's reveals of the same sizes: 5th percentile in the same lane. Also `a`:
    the most that a worker that avoids all of it could gain."""
    uncertainty_us: float
    """u = max(3 sigma, a, 2 us a reveal), per call: a claim that is further below is false."""
    quartile_us: float | None = None
    """Lower quartile of single reveals by the outside clock; None in records of grader versions up to 4."""
    lowest_us: float | None = None
    """Lowest claim that is used: the outside figure less (u - a). None where u is over 5 % of it and no claim
    is used."""
    claimed: bool = True
    """The worker made a well-formed claim for every reveal; otherwise `inside` repeats the outside figure."""
    matched: bool
    """The in-process mean is used: it lies within u of the outside figure, or the worker runs only our
    code."""


class Secondary(Record):
    """A time beside the score, claimed by the worker and never ranked."""

    mode: Literal["graph", "queued", "warm"]
    """CUDA graph replay; launches enqueued behind a held stream; the same operands again."""
    claimed_us: float
    """Per call."""
    calls: int


class ContenderTiming(Record):
    """The student or one reference on one workload."""

    name: str
    """`student`, `eager`, `compile` or `library`."""
    lanes: tuple[Lane, ...]
    lane: LaneName
    """The scored lane: `batch`; `call` in records of grader versions up to 4."""
    score_us: float
    """In the scored lane: the in-process mean where it is matched, else the outside figure or, where the two
    contradict each other, the larger; for a reference, by the same clock as its student."""
    latency_us: float
    """L: mean time from the worker's `done` until nothing can change the outputs: the worker is frozen, or
    (on a device) the copy is complete."""
    flags: tuple[str, ...] = ()
    """`clock_mismatch`, `outside_clock` (u is over 5 %, so no claim is used)."""
    secondary: tuple[Secondary, ...] = ()

    @property
    def scored_lane(self) -> Lane:
        """The lane that is scored."""
        return next(lane for lane in self.lanes if lane.name == self.lane)


class Ratio(Record):
    """t_reference / t_student with its 95 % interval."""

    value: float
    low: float | None
    high: float | None
    n: int
    """Independent log ratios."""
    unit: Literal["blocks", "process pairs"] = "blocks"
    """What n counts (`quick`, `full`). An interval over blocks of one process omits how processes differ."""

    @property
    def distinguishable(self) -> bool:
        """The interval excludes 1 and the effect is at least 2 %."""
        if self.low is None or self.high is None:
            return False
        return (self.low > 1 or self.high < 1) and abs(math.log(self.value)) >= math.log(1.02)


class Interference(Record):
    """What a student's frozen process did to the references that it is compared with, as shares: 0.1 is 10 %
    slower."""

    excess: float
    """References with the student frozen, over the same with its process gone, less 1."""
    control: float | None
    """The same with the null project in its place; None where it was not needed."""
    uncertainty: float | None
    """3 sigma of the excess; None where unknown."""
    seen: bool
    """The excess is above the control by more than 5 % and 3 sigma, and in one more process where others were
    measured: references are then scored by their times with the process gone."""
    lives: int
    """Processes of the student that were measured."""
    lives_slowed: int
    """Those of them that show it."""
    cause: str | None = None
    """What the kernel did meanwhile, where that was seen."""


class WorkloadTiming(Record):
    """Speed on one workload."""

    workload: str
    dtype: str
    student: ContenderTiming
    references: tuple[ContenderTiming, ...]
    speedup: Ratio
    """Against the fastest reference timed."""
    clock: ClockName = "inside"
    """Clock of both sides of the ratio: `outside` where the student's claims are not used. Where they
    contradict it (`clock_mismatch`), references have the smaller of their two figures."""
    bytes_moved: int
    """Unique bytes of all operands."""
    flops: int | None = None
    speed_of_light: float | None = None
    """Fraction of the limit reached; None where the limit of this machine is unknown."""
    physics: PhysicalLimit | None = None
    """The limit; None where speed_of_light is."""
    telemetry: tuple[BlockTelemetry, ...] = ()
    """Every block, dropped ones included."""
    interference: Interference | None = None
    """None where no process of the student's lives while references are timed."""


class TimingResult(Record):
    """Speed over all timed workloads."""

    workloads: tuple[WorkloadTiming, ...]
    speedup: Ratio
    """Geometric mean over the timed workloads, paired by block."""
    flags: tuple[str, ...] = ()
    """`noisy host`, `clock_mismatch`, `outside_clock`, `interference`, `cheaper_in_batches` (calls of a batch
    may have been fused), `interval not reached`, `above the limit`, `suspiciously fast`."""
    notes: tuple[str, ...] = ()
    """What was not measured, and why."""
    transport: str = "memfd"
    """How memory is shared with workers: `memfd`, `cuda-vmm` or `cuda-ipc`."""
    transport_facts: dict[str, str] = Field(default_factory=dict)
    finding: Finding | None = None
    """Set when timing found a cheat or the worker died."""


class HandShake(Record):
    """Cost of a reveal without any work, per call: the null project."""

    lane: LaneName
    reveals: int
    c05_us: float
    """5th percentile: subtracted from every outside figure."""
    median_us: float
    p95_us: float


class SizeFigures(Record):
    """Two equal processes of one reference at one size."""

    workload: str
    dtype: str
    bytes_moved: int
    hand_shake: tuple[HandShake, ...]
    lane: LaneName
    """The lane that would be scored: `batch` where a call is shorter than 10 L."""
    inside_us: float
    """By the worker's own clock, per call."""
    outside_us: float
    uncertainty_us: float
    """u: an inside figure further from the outside one contradicts it."""
    latency_us: float
    """L: from `done` until nothing can change any more."""
    ratio: Ratio
    """By blocks as in `quick`, by their own clocks; 1 is right."""
    outside_ratio: Ratio
    """The same by the outside clock."""
    process_spread: float | None
    """Standard deviation between equal processes, as a share, which an interval over blocks omits."""


class FalseAlarms(Record):
    """How often one of two equal contenders is called faster; a 95 % interval allows 2.5 % per direction, and
    the protocols 5 %."""

    protocol: Protocol
    """`quick`: blocks of one pair of processes; `full`: one ratio per pair of processes."""
    clock: ClockName
    comparisons: int
    """Resampled from the recorded blocks, so not independent."""
    rate: float
    """By the interval alone."""
    rate_with_gate: float
    """With an effect of at least 2 %."""


class Calibration(Record):
    """Result of `liftbench doctor --timing`: the clock tried on contenders that are the same."""

    schema_version: Literal[1] = SCHEMA_VERSION
    task: str
    """Whose reference was timed."""
    transport: str
    transport_facts: dict[str, str] = Field(default_factory=dict)
    sandbox: str = ""
    processes: int
    """Of the same reference."""
    sizes: tuple[SizeFigures, ...]
    false_alarms: tuple[FalseAlarms, ...]
    blocks: int
    disturbed_blocks: int
    disturbances: tuple[str, ...]
    noisy: bool
    """More than 10 % of the blocks were disturbed, or an A/A interval is wider than 5 %."""
    wall_s: float | None = None
