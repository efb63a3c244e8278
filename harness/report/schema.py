"""Records of a whole report: the run, its arms, tasks and trials; the input of every renderer.

None is unknown, not computable or not measured, never 0. Nothing is rounded. Text of a student or a provider
has been cleaned of control characters.
"""

from __future__ import annotations

from typing import Final, Literal

from harness.outcome import Cause, Stage, Verdict
from harness.records import DeviceKernel, Diagnostic, DiagnosticKind, GraderFacts, Record, RunSettings
from harness.records.grade import EmulatedOutcome
from harness.report.comparison_schema import Bounded, Comparison, Detectable, Matrix, Rate

REPORT_SCHEMA_VERSION: Final = 1


class NamedDigest(Record):
    """A skill or task, and the digest that pins it."""

    name: str
    digest: str


class Leak(Record):
    """A task whose reference a skill repeats: no comparison, rate or decision counts it."""

    task: str
    where: str


class Gap(Record):
    """Why a metric was not measured in this run."""

    cause: Cause
    reason: str
    """In a few words, such as `no CUDA device`."""
    message: str
    """First line of the first such trial's message."""
    trials: int


class Quartiles(Record):
    """A distribution of durations."""

    n: int
    total_s: float
    median_s: float
    q1_s: float
    q3_s: float


class Usages(Record):
    """Tokens and dollars; one unknown reply makes a sum unknown."""

    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None

    @property
    def tokens(self) -> int | None:
        """Input and output together; cached and reasoning tokens are parts of them."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


class Head(RunSettings, GraderFacts):
    """What was measured, where, and with what."""

    run_id: str
    created: str
    sandbox_facts: dict[str, str]
    sandbox_weak: bool
    device: str
    models: tuple[str, ...]
    skills: tuple[NamedDigest, ...]
    tasks: tuple[NamedDigest, ...]
    families: tuple[str, ...]
    leaked: tuple[Leak, ...] = ()


class Progress(Record):
    """How much of the plan (tasks x arms x models x repeats) is finished."""

    planned: int
    finished: int
    scored: int
    owed: int
    infra_trials: int
    """Every attempt failed for infrastructure reasons: not scored."""
    infra_failures: int
    unplanned: int
    """Records whose task, model or arm is not in the plan: left out."""


class Replies(Record):
    """Where the students' replies came from."""

    recorded: int
    live: int
    model_labels: tuple[str, ...]
    first: str | None
    last: str | None
    """Dates (UTC, ISO 8601) of the first and last reply."""


class Timings(Record):
    """What the run's time went into; None where nothing was timed."""

    reply: Quartiles | None
    build: Quartiles | None
    compiler: Quartiles | None
    grade: Quartiles | None
    cache_hits: int
    builds: int


class FastLevel(Bounded):
    """Share of one arm's kernels that are correct and faster than a threshold: a mean over families."""

    threshold: float
    share: float


class PassPoint(Record):
    """pass@k and pass^k of one arm, means over families of tasks with at least k scored replies."""

    k: int
    at: float
    """Chance that at least one of k replies is correct."""
    hat: float
    """Chance that all k are."""


class ArmSummary(Record):
    """One model in one arm, on its own."""

    model: str
    arm: str
    kind: str
    label: str
    planned: int
    scored: int
    infra_trials: int
    infra_failures: int
    compiled: Rate | None
    correct: Rate | None
    faster: int | None
    """Correct and distinguishably faster than the reference."""
    alike: int | None
    slower: int | None
    noisy: int
    fast_p: tuple[float, ...] | None
    """Share of all scored trials that are correct and faster than each threshold (KernelBench's fast_p)."""
    usage: Usages
    tokens_per_correct: float | None
    cost_usd_per_correct: float | None
    fast_levels: tuple[FastLevel, ...] = ()
    passes: tuple[PassPoint, ...] = ()


class ReadFile(Record):
    """A file that students asked for."""

    file: str
    trials: Rate
    tokens: float | None
    """Median growth of the next prompt where a step read this file alone; None: not reported."""


class Reading(Record):
    """What was read in one arm with disclosed delivery."""

    model: str
    arm: str
    label: str
    skills: tuple[ReadFile, ...]
    files: tuple[ReadFile, ...]
    tokens: float | None
    """Input and output of the replies that only asked for files, mean per scored trial."""


class TaskCell(Record):
    """One task in one arm."""

    arm: str
    n: int
    compiled: int | None
    correct: int | None
    median_speedup: float | None
    verdicts: dict[str, int]
    trials: tuple[int, ...]


class TaskRow(Record):
    """One task and model over the arms."""

    task: str
    family: str
    model: str
    cells: tuple[TaskCell, ...]
    leaked: bool = False
    """A skill repeats its reference: shown here, counted nowhere else."""


class WorkloadRow(Record):
    """All cases of one workload and dtype in one trial, and its time where it was timed."""

    workload: str
    dtype: str
    cases: int
    """Kinds of values and layouts that were checked."""
    failed: int
    worst_error: float | None
    """Largest error / tolerance."""
    allowed_error: float | None
    headline: str | None = None
    """First line about the first case that failed, or why it was not run."""
    student_us: float | None = None
    reference: str | None = None
    """The fastest reference that was timed."""
    reference_us: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    flags: tuple[str, ...] = ()


class TrialRow(Record):
    """One finished trial."""

    task: str
    family: str
    model: str
    arm: str
    repeat: int
    verdict: Verdict
    emulated: EmulatedOutcome | None = None
    """Outcome on the emulated GPU; never a GPU's."""
    stage: Stage | None
    cause: Cause
    headline: str
    message: str
    diagnostics: tuple[Diagnostic, ...] = ()
    build_wall_s: float | None
    compiler_s: float | None
    cache_hit: bool | None
    jit: bool = False
    calls: tuple[str, ...] = ()
    kernels: tuple[DeviceKernel, ...] | None = None
    evidence: tuple[str, ...] = ()
    worst_error: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    flags: tuple[str, ...]
    workloads: tuple[WorkloadRow, ...] = ()
    """In the order of the check; of the emulated GPU's check where no GPU ran."""
    tokens: int | None
    cost_usd: float | None
    folder: str
    """Relative to the run folder."""


class ArmCount(Record):
    """A count in one arm, over all models."""

    arm: str
    count: int


class FailedTrials(Record):
    """Trials that failed for the same reason."""

    counts: tuple[ArmCount, ...]
    total: int
    example: str
    """The first compiler error where there is one, else the first line of a message."""
    example_task: str

    def count(self, arm: str) -> int:
        return sum(one.count for one in self.counts if one.arm == arm)


class FailureGroup(FailedTrials):
    """Trials that failed for the same cause."""

    cause: Cause
    verdict: Verdict


class BuildFailureGroup(FailedTrials):
    """Failed builds with the same first error, names in it apart; each build counts once."""

    kind: DiagnosticKind


class Summary(Record):
    """Everything a report says about one run."""

    schema_version: Literal[1] = REPORT_SCHEMA_VERSION
    head: Head
    progress: Progress
    replies: Replies
    totals: Usages
    timings: Timings
    build_gap: Gap | None
    check_gap: Gap | None
    detectable: Detectable
    warnings: tuple[str, ...]
    arms: tuple[ArmSummary, ...]
    comparisons: tuple[Comparison, ...]
    matrices: tuple[Matrix, ...] = ()
    readings: tuple[Reading, ...] = ()
    tasks: tuple[TaskRow, ...]
    failures: tuple[FailureGroup, ...]
    build_failures: tuple[BuildFailureGroup, ...] = ()
    trials: tuple[TrialRow, ...]

    def arm(self, model: str, arm: str) -> ArmSummary:
        return next(a for a in self.arms if (a.model, a.arm) == (model, arm))

    @property
    def matrix_leads(self) -> bool:
        """Whether the matrix stands before the headlines: with more than 3 comparisons."""
        return bool(self.matrices) and len(self.comparisons) > 3
