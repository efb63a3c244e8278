"""Records of timing: lanes and ratios, host telemetry, and calibration of the clock."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from harness.records.base import SCHEMA_VERSION, ClockName, LaneName, Record
from harness.records.project import Finding

MINIMUM_EFFECT = 1.02
"""A speedup below it is never called one (our choice)."""
NOISY = "noisy host"
"""Flag of a timing that the machine disturbed: shown, never ranked."""


class Extent(Record):
    low: float
    high: float


class BlockTelemetry(Record):
    """The machine during one block, sampled before and after every turn; None is unknown."""

    block: int
    disturbed: tuple[str, ...]
    runnable_most: int | None
    steal_s: float | None
    cpu_wait_s: float | None
    """Within the block; no reason to drop it, since the timed process can cause it."""
    cpu_mhz: Extent | None
    sm_mhz: Extent | None = None
    memory_mhz: Extent | None = None
    power_w: Extent | None = None
    temperature_c: Extent | None = None
    held_down_by: tuple[str, ...] | None = None


class Spread(Record):
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
    """Judge's total / calls, less the null project's constant and the copy of a reference's results."""
    constant_us: float
    """Per call, for the null project's reveals of the same sizes: mean in the same lane, 5th percentile in
    records of grader versions up to 6. Also `a`: the most that a worker that avoids all of it could gain."""
    uncertainty_us: float
    """u = max(3 sigma, a, 2 us a reveal), per call: a claim that is further below is false."""
    quartile_us: float | None = None
    """Lower quartile of single reveals by the outside clock; None in records of grader versions up to 4."""
    lowest_us: float | None = None
    """Lowest claim that is used: outside - (u - a). None where u is over 5 % of it and no claim is used."""
    claimed: bool = True
    """The worker made a well-formed claim for every reveal; otherwise `inside` repeats the outside figure."""
    matched: bool
    """The in-process mean is used: within u of the outside figure, or the worker runs only our code."""


class Secondary(Record):
    mode: Literal["graph", "queued", "warm"]
    """CUDA graph replay; launches enqueued behind a held stream; the same operands again."""
    claimed_us: float
    calls: int


class ContenderTiming(Record):
    name: str
    lanes: tuple[Lane, ...]
    lane: LaneName
    """The scored lane: `batch`; `call` in records of grader versions up to 4."""
    score_us: float
    """In the scored lane: the in-process mean where it is matched, else the outside figure or, where the two
    contradict each other, the larger; for a reference, by the same clock as its student."""
    latency_us: float
    """L: mean time from the worker's `done` until nothing can change the outputs."""
    flags: tuple[str, ...] = ()
    secondary: tuple[Secondary, ...] = ()
    reveals_us: tuple[float, ...] = ()
    """Outside figure of every reveal of the scored lane, per call, in order; empty in older records."""

    @property
    def scored_lane(self) -> Lane:
        return next(lane for lane in self.lanes if lane.name == self.lane)


class Ratio(Record):
    """t_reference / t_student with its 95 % interval."""

    value: float
    low: float | None
    high: float | None
    n: int
    unit: Literal["blocks", "process pairs"] = "blocks"
    """What n counts (`quick`, `full`). An interval over blocks of one process omits how processes differ."""

    @property
    def distinguishable(self) -> bool:
        if self.low is None or self.high is None:
            return False
        return (self.low > 1 or self.high < 1) and abs(math.log(self.value)) >= math.log(MINIMUM_EFFECT)


class Interference(Record):
    """What a student's frozen process did to references, as shares: 0.1 is 10 % slower."""

    excess: float
    """References with the student frozen, over the same with its process gone, less 1."""
    control: float | None
    """The same with the null project in its place; None where it was not needed."""
    uncertainty: float | None
    seen: bool
    """The excess is above the control by more than 5 % and 3 sigma, and in one more process where others were
    measured: references are then scored by their times with the process gone."""
    lives: int
    lives_slowed: int
    cause: str | None = None


class PhysicalLimit(Record):
    board: str
    time_us: float
    limit_us: float
    bound_by: Literal["compute", "memory", "launch"]
    fraction: float
    """limit_us / time_us; 1 is the limit."""
    measured_limit_us: float | None = None
    score: float | None = None
    """1 / (1 + (T - T_sol) / (T_ref - T_sol)); None where the reference is at the limit."""
    floor_us: float
    flags: tuple[str, ...] = ()

    @property
    def impossible(self) -> bool:
        return self.time_us < self.floor_us


class WorkloadTiming(Record):
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
    flops: int | None = None
    speed_of_light: float | None = None
    """Fraction of the limit reached; None where the limit of this machine is unknown."""
    physics: PhysicalLimit | None = None
    telemetry: tuple[BlockTelemetry, ...] = ()
    interference: Interference | None = None
    """None where no process of the student's lives while references are timed."""


class TimingResult(Record):
    workloads: tuple[WorkloadTiming, ...]
    speedup: Ratio
    """Geometric mean over the timed workloads, paired by block."""
    flags: tuple[str, ...] = ()
    """`noisy host`, `clock_mismatch`, `outside_clock`, `interference`, `cheaper_in_batches` (calls of a batch
    may have been fused), `unresolved` (over half of a reveal is its constant: no interval), `interval not
    reached`, `above the limit`, `suspiciously fast`."""
    notes: tuple[str, ...] = ()
    transport: str = "memfd"
    """How memory is shared with workers: `memfd`, `cuda-vmm` or `cuda-ipc`."""
    transport_facts: dict[str, str] = Field(default_factory=dict)
    timed_share: float | None = None
    """Of the time of the stage, what calls of students and references took; None in older records."""
    finding: Finding | None = None


class HandShake(Record):
    """What reveals to the null project took, less what each set adds."""

    bytes_moved: int
    lane: LaneName
    reveals: int
    c05_us: float
    median_us: float
    p95_us: float
    per_set_us: float


class CalibrationPair(Record):
    """Two references whose ratio is known, compared as a student and a reference are."""

    workload: str
    bytes_moved: int
    truth: float
    ratio: Ratio
    clock: ClockName
    outside_us: float
    uncertainty_us: float
    flags: tuple[str, ...] = ()

    @property
    def half_width(self) -> float | None:
        """Of the interval, as a share of the ratio."""
        low, high = self.ratio.low, self.ratio.high
        return None if low is None or high is None else (high - low) / (2 * self.ratio.value)

    @property
    def missed(self) -> bool:
        """The interval excludes the truth by more than the 2 % that a speedup needs to count."""
        low, high = self.ratio.low, self.ratio.high
        excluded = low is not None and high is not None and not low <= self.truth <= high
        return excluded and abs(math.log(self.ratio.value / self.truth)) >= math.log(MINIMUM_EFFECT)


class Calibration(Record):
    """Result of `liftbench doctor --timing`: the clock tried on pairs whose ratio is known."""

    schema_version: Literal[1] = SCHEMA_VERSION
    task: str
    transport: str
    transport_facts: dict[str, str] = Field(default_factory=dict)
    sandbox: str = ""
    pairs: tuple[CalibrationPair, ...]
    hand_shake: tuple[HandShake, ...]
    timed_share: float
    """Of the time of the stage, what calls of students and references took."""
    blocks: int
    disturbed_blocks: int
    disturbances: tuple[str, ...]
    noisy: bool
    """More than 10 % of the blocks were disturbed, or half of the intervals are wider than 5 % to a side."""
    wall_s: float | None = None
