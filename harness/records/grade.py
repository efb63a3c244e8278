"""Records of a grade: correctness and time."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import Field, model_validator

from harness.outcome import Stage, Verdict
from harness.records.base import SCHEMA_VERSION, Protocol, Record, Target
from harness.records.build import BuildResult
from harness.records.project import Finding


class WorkloadCheck(Record):
    """Correctness on one workload, over all its calls."""

    workload: str
    dtype: str
    calls: int
    worst_error: float | None
    """Largest |y - truth| / tolerance over all elements; None when no values could be compared."""
    allowed_error: float | None
    """What worst_error may be: 1, or 4 x the error of the reference where that is more and was needed."""
    worst_absolute: float | None
    finding: Finding | None


class CheckResult(Record):
    """Correctness over all workloads."""

    workloads: tuple[WorkloadCheck, ...]
    finding: Finding | None
    """The first failure; None exactly when everything passed."""
    not_run: tuple[str, ...] = ()
    """Workloads after a failure that ended the worker."""


class Spread(Record):
    """A distribution of durations."""

    n: int
    mean_us: float
    median_us: float
    q1_us: float
    q3_us: float


class Lane(Record):
    """One way of revealing inputs, timed by the worker itself and by the judge, over the same calls."""

    name: Literal["call", "batch"]
    """`call`: one reveal per call. `batch`: K input sets revealed at once, K secret."""
    calls: int
    inside: Spread
    """The worker's own figures: forgeable where the worker runs a student's code."""
    outside_us: float
    """Judge's total / calls, less the null project's constant."""
    constant_us: float
    """5th percentile of the null project's figure in the same lane."""
    uncertainty_us: float
    """u = max(10 %, 3 sigma, 2 us): the most that a forged in-process figure can gain unnoticed."""
    matched: bool
    """The in-process mean is used: it lies within u of the outside figure and not below half of that
    figure's lower quartile (or the worker runs only our code)."""


class ContenderTiming(Record):
    """One contender on one workload."""

    name: str
    """`student`, `eager`, `compile` or `library`."""
    lanes: tuple[Lane, ...]
    lane: Literal["call", "batch"]
    """The lane that is scored: `call`, unless the workload is clock-limited."""
    score_us: float
    """The in-process mean of the scored lane where it is matched, else the larger of the two."""
    latency_us: float
    """L: mean time from the worker's `done` until it is frozen for the snapshot."""
    flags: tuple[str, ...] = ()
    """`clock_mismatch`, `clock-limited`."""

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
    """Independent log ratios behind it (blocks in `quick`, process pairs in `full`)."""

    @property
    def distinguishable(self) -> bool:
        """The interval excludes 1 and the effect is at least 2 %."""
        if self.low is None or self.high is None:
            return False
        return (self.low > 1 or self.high < 1) and abs(math.log(self.value)) >= math.log(1.02)


class WorkloadTiming(Record):
    """Speed on one workload."""

    workload: str
    dtype: str
    student: ContenderTiming
    references: tuple[ContenderTiming, ...]
    speedup: Ratio
    """Against the fastest reference timed."""
    bytes_moved: int
    """Unique bytes of all operands."""
    flops: int | None = None
    speed_of_light: float | None = None
    """Fraction of the limit reached; None where the limit of this machine is unknown."""


class TimingResult(Record):
    """Speed over all timed workloads."""

    workloads: tuple[WorkloadTiming, ...]
    speedup: Ratio
    """Geometric mean over the timed workloads, paired by block."""
    flags: tuple[str, ...] = ()
    """`noisy host`, `clock_mismatch`, `clock-limited`."""
    finding: Finding | None = None
    """Set when timing found a cheat or the worker died."""


class Grade(Record):
    """The judged outcome of one project on one task."""

    schema_version: Literal[1] = SCHEMA_VERSION
    task: str
    task_digest: str
    project: str | None
    """Project digest; None when there was none."""
    target: Target
    protocol: Protocol
    verdict: Verdict
    stage: Stage
    """Where the verdict fell: the failing stage, the first not run, or `time` when correct."""
    finding: Finding
    flags: tuple[str, ...] = ()
    """Of what the built library calls (BinaryCalls.flags), unless the task allows it; never a verdict."""
    build: BuildResult | None = None
    check: CheckResult | None = None
    timing: TimingResult | None = None
    sandbox: str
    sandbox_facts: dict[str, str] = Field(default_factory=dict)
    machine: str
    """MachineFacts.digest of the machine that graded."""
    wall_s: float

    @property
    def compiled(self) -> bool:
        """Whether the build stage was passed."""
        return self.build is not None and self.build.ok

    @property
    def correct(self) -> bool | None:
        """None when correctness was not measured."""
        return None if self.verdict is Verdict.NOT_MEASURED else self.verdict is Verdict.CORRECT

    @model_validator(mode="after")
    def _legal(self) -> Self:
        if self.finding.verdict is not self.verdict:
            raise ValueError(f"cause {self.finding.cause} does not mean {self.verdict}")
        if self.verdict is Verdict.CORRECT and (
            self.check is None or self.check.finding is not None or self.timing is None
        ):
            raise ValueError("correct needs a passed check and a timing")
        if self.verdict is Verdict.INFRA:
            raise ValueError("infra is a failed attempt, not a grade")
        return self
