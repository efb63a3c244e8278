"""Records of a grade: correctness and time."""

from __future__ import annotations

import math
from typing import Final, Literal, Self

from pydantic import Field, model_validator

from harness.outcome import Cause, Stage, Verdict
from harness.records.base import SCHEMA_VERSION, Protocol, Record, Target
from harness.records.build import BuildResult
from harness.records.evidence import Evidence, PhysicalLimit, SanitizerRun
from harness.records.project import Finding
from harness.records.provenance import COPIED, Provenance
from harness.records.telemetry import BlockTelemetry

SCALED: Final = "scaled"
"""Flag: graded on a problem whose first axis was made smaller for the target; never ranked."""
REPEATED: Final = "repeated after a kill"
"""Flag: a worker died by a signal that may have come from outside, and the grade was begun again."""


class WorkloadCheck(Record):
    """Correctness in one case (a workload, a dtype, a kind of values, a layout), over all its calls."""

    workload: str
    dtype: str
    calls: int
    worst_error: float | None
    """Largest |y - truth| / tolerance over all elements; None when no values could be compared."""
    allowed_error: float | None
    """What worst_error may be: 1, or 4 x the error of the reference where that is more and was needed."""
    worst_absolute: float | None
    finding: Finding | None
    values: str = "task"
    """`task`: what the task's make_inputs draws; `integers`: the exact lane; else an adversarial kind."""
    layout: str = "contiguous"
    """How operands lay in memory."""
    hidden: bool = False
    """The shape was drawn when the project was graded."""
    dims: dict[str, int] | None = None
    """Sizes; None in records of before hidden shapes."""
    where: tuple[int, ...] | None = None
    """Index of the worst element, where values were out of tolerance."""
    output: str | None = None
    """The output that `where` is an index of."""
    skipped: str | None = None
    """Why values were not judged, such as a truth that the dtype cannot hold."""
    rows: tuple[int, int] | None = None
    """(rows of a call that were compared with the truth, all rows) of a problem judged by rows, else None."""


class CheckResult(Record):
    """Correctness over all workloads: one entry per case."""

    workloads: tuple[WorkloadCheck, ...]
    finding: Finding | None
    """The first failure; None exactly when everything passed."""
    not_run: tuple[str, ...] = ()
    """Workloads after a failure that ended the worker."""
    precision: Literal["strict", "tf32"] | None = None
    """The lane for float32: `strict`, or `tf32` where the task allows it."""


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
    """Judge's total / calls, less the null project's constant; for references less the copy of the results
    into the judge's buffers too."""
    constant_us: float
    """What the null project's reveals of the same sizes cost, per call: 5th percentile in the same lane. Also
    `a`: what a worker that avoids all of it could gain."""
    uncertainty_us: float
    """u = max(3 sigma, a, 2 us a reveal), per call: a claim further below is false."""
    quartile_us: float | None = None
    """Lower quartile of single reveals' outside figures; None in records of grader versions up to 4."""
    lowest_us: float | None = None
    """What a claim counts down to: the outside figure less (u - a); None where u is more than 5 % of it, and
    no claim is used."""
    claimed: bool = True
    """The worker made a well-formed claim for every reveal; else `inside` repeats the outside figure."""
    matched: bool
    """The in-process mean is used: it lies within u of the outside figure (or the worker runs only our
    code)."""


class Secondary(Record):
    """A figure beside the score, claimed by the worker and never ranked."""

    mode: Literal["graph", "queued", "warm"]
    """CUDA graph replay; launches enqueued behind a held stream; the same operands again."""
    claimed_us: float
    """Per call."""
    calls: int


class ContenderTiming(Record):
    """One contender on one workload."""

    name: str
    """`student`, `eager`, `compile` or `library`."""
    lanes: tuple[Lane, ...]
    lane: Literal["call", "batch"]
    """The lane that is scored: `batch`; `call` in records of grader versions up to 4."""
    score_us: float
    """In the scored lane: the in-process mean where it is matched, else the outside figure or, where the two
    contradict each other, the larger; for a reference the figure of its student's clock."""
    latency_us: float
    """L: mean time from the worker's `done` until nothing can change the snapshot: it is frozen, or (on a
    device) the copy is complete."""
    flags: tuple[str, ...] = ()
    """`clock_mismatch`, `outside_clock` (u is more than 5 %, so no claim is used)."""
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
    """Independent log ratios behind it (blocks in `quick`, process pairs in `full`)."""
    unit: Literal["blocks", "process pairs"] = "blocks"
    """What n counts. An interval over blocks of one process leaves out how processes differ."""

    @property
    def distinguishable(self) -> bool:
        """The interval excludes 1 and the effect is at least 2 %."""
        if self.low is None or self.high is None:
            return False
        return (self.low > 1 or self.high < 1) and abs(math.log(self.value)) >= math.log(1.02)


class Interference(Record):
    """What a student's frozen process did to the references it is compared with. Shares: 0.1 is 10 %
    slower."""

    excess: float
    """References with the scored process frozen, over the same with it gone, less 1."""
    control: float | None
    """The same with the null project in its place; None where nothing made that necessary."""
    uncertainty: float | None
    """3 sigma of the excess; None where it is not known."""
    seen: bool
    """The excess is above the control's by more than 5 % and 3 sigma, and beside one more process too where
    others were looked at: references are scored by what they took with the process gone."""
    lives: int
    """Processes of the student that were looked at."""
    lives_slowed: int
    """Of those, how many show it."""
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
    clock: Literal["inside", "outside"] = "inside"
    """Which clock both sides of the ratio are by: `outside` where the student's claims are not used. Where
    they contradict it (`clock_mismatch`), references have the smaller of their two figures."""
    bytes_moved: int
    """Unique bytes of all operands."""
    flops: int | None = None
    speed_of_light: float | None = None
    """Fraction of the limit reached; None where the limit of this machine is unknown."""
    physics: PhysicalLimit | None = None
    """The limit itself; None where speed_of_light is."""
    telemetry: tuple[BlockTelemetry, ...] = ()
    """What else the machine did, block by block, dropped ones too."""
    interference: Interference | None = None
    """None where no process of the student's lives while references are measured."""


class TimingResult(Record):
    """Speed over all timed workloads."""

    workloads: tuple[WorkloadTiming, ...]
    speedup: Ratio
    """Geometric mean over the timed workloads, paired by block."""
    flags: tuple[str, ...] = ()
    """`noisy host`, `clock_mismatch`, `outside_clock`, `interference`, `cheaper_in_batches` (work of
    many sets may have been fused), `interval not reached`, `above the
    limit`, `suspiciously fast`."""
    notes: tuple[str, ...] = ()
    """What was not measured, and why."""
    transport: str = "memfd"
    """How memory is shared with workers: `memfd`, `cuda-vmm` or `cuda-ipc`."""
    transport_facts: dict[str, str] = Field(default_factory=dict)
    finding: Finding | None = None
    """Set when timing found a cheat or the worker died."""


class KernelBenchScore(Record):
    """A converted KernelBench problem's project by KernelBench's own rules: shown, never ranked by us."""

    trials: int
    passed: int
    """Trials whose outputs were allclose to eager PyTorch's."""
    correct: bool
    """All trials passed."""
    tolerance: float
    """Absolute and relative."""
    calls: int = 0
    """How many calls the mean is of: 100 by the rule, fewer where they are slow."""
    claimed_us: float | None = None
    """Mean of a call by the worker's own account, which this rule trusts; None: not correct, or no claim."""
    eager_us: float | None = None
    """The same of eager PyTorch."""
    message: str | None = None
    """How the worker failed, where it did."""

    @property
    def speedup(self) -> float | None:
        """Over eager PyTorch; None where it is not correct or was not timed."""
        if not self.correct or not self.claimed_us or self.eager_us is None:
            return None
        return self.eager_us / self.claimed_us


_EARLIER = frozenset({(Cause.BUILD_TIMEOUT, Verdict.BUILD_FAILED)})
"""What a cause meant in records of grader version 4 and before."""


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
    """Where the verdict fell: the failing stage, the first not run, or, when correct, `time` (`check` where
    timing was not asked for)."""
    finding: Finding
    flags: tuple[str, ...] = ()
    """All: of what the built library calls and the traced call dispatches, unless the task allows it, of
    sanitizers that found something, of where the source stands already, and of timing; never a verdict."""
    build: BuildResult | None = None
    check: CheckResult | None = None
    timing: TimingResult | None = None
    evidence: Evidence | None = None
    """What one traced call dispatched and launched; None when it was not asked for or not reached."""
    provenance: Provenance | None = None
    """What its source has in common with kernels_ref; None without a project, and in records of before it."""
    sanitizers: tuple[SanitizerRun, ...] = ()
    """Empty unless they were asked for."""
    kernelbench: KernelBenchScore | None = None
    """By KernelBench's own rules; None for other tasks, without timing, and where nothing could run."""
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
    def not_built(self) -> bool:
        """Whether the build stage ended it, by the project's own fault."""
        return self.stage is Stage.BUILD and self.verdict is not Verdict.NOT_MEASURED

    @property
    def correct(self) -> bool | None:
        """None when correctness was not measured."""
        return None if self.verdict is Verdict.NOT_MEASURED else self.verdict is Verdict.CORRECT

    @property
    def copied(self) -> bool:
        """Whether so much of its source stands in kernels_ref that it is flagged."""
        return COPIED in self.flags

    @property
    def flags_of_work(self) -> tuple[str, ...]:
        """Flags of what the project does, without those of its source, of timing and of a repetition."""
        others = {COPIED, REPEATED, SCALED, *(() if self.timing is None else self.timing.flags)}
        return tuple(flag for flag in self.flags if flag not in others)

    @model_validator(mode="after")
    def _legal(self) -> Self:
        if self.finding.verdict is not self.verdict and (self.finding.cause, self.verdict) not in _EARLIER:
            raise ValueError(f"cause {self.finding.cause} does not mean {self.verdict}")
        if self.verdict is Verdict.CORRECT and (
            self.check is None
            or self.check.finding is not None
            or (self.timing is None and self.stage is not Stage.CHECK)
        ):
            raise ValueError("correct needs a passed check, and a timing unless it ended with the check")
        if self.verdict is Verdict.INFRA:
            raise ValueError("infra is a failed attempt, not a grade")
        return self
