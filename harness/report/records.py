"""What a report says, as frozen records: the one input of every renderer.

Owns: the shape of report.json (docs/report.schema.json is generated from here).
Does not own: how a figure is computed (comparisons.py, tallies.py) or rounded (figures.py).
Invariant: None is "not computable", "unknown" or "not measured", never 0; nothing here is rounded,
and text that a student or provider wrote has been cleaned of control characters.
"""

from __future__ import annotations

from typing import Final, Literal

from harness.outcome import Cause, Stage, Verdict
from harness.records import (
    DeviceKernel,
    Diagnostic,
    DiagnosticKind,
    MachineFacts,
    Protocol,
    Record,
    Sampling,
    Target,
)

REPORT_SCHEMA_VERSION: Final = 1

Unit = Literal["share", "ratio"]
MetricName = Literal[
    "compiles", "correct", "deployed", "speedup_both_correct", "pass_at_1", "pass_at_k", "pass_hat_k"
]


class NamedDigest(Record):
    """A skill or task, and the digest that pins it."""

    name: str
    digest: str


class Gap(Record):
    """Why a metric was not measured in this run."""

    cause: Cause
    reason: str
    """In a few words, such as `no CUDA device`."""
    message: str
    """First line of the first such trial's message."""
    trials: int
    """How many trials stopped there."""


class Rate(Record):
    """A share of trials with its Wilson 95 % interval; trials count as independent here."""

    count: int
    n: int
    low: float | None
    high: float | None


class Quartiles(Record):
    """A distribution of durations."""

    n: int
    total_s: float
    median_s: float
    q1_s: float
    q3_s: float


class Usages(Record):
    """Tokens and dollars; None is unknown, which one unknown reply is enough for."""

    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None

    @property
    def tokens(self) -> int | None:
        """Input and output together; cached and reasoning tokens are parts of them."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


class Head(Record):
    """What was measured, where, and with what."""

    run_id: str
    created: str
    target: Target
    protocol: Protocol
    metric: Literal["deployed", "correct", "compiles"]
    """The primary metric, fixed before the run."""
    sandbox: str
    sandbox_facts: dict[str, str]
    sandbox_weak: bool
    """The run used `local`, which isolates little."""
    machine: MachineFacts
    device: str
    """What the kernels were built for and ran on, in words."""
    grader_version: str
    image: str | None
    models: tuple[str, ...]
    skills: tuple[NamedDigest, ...]
    tasks: tuple[NamedDigest, ...]
    families: tuple[str, ...]
    repeats: int
    turns: int
    sampling: Sampling
    seed: int


class Progress(Record):
    """How much of the plan (tasks x arms x models x repeats) is there."""

    planned: int
    finished: int
    scored: int
    """Finished and not lost to infra."""
    owed: int
    """Planned and absent: not measured (time budget)."""
    infra_trials: int
    """Every attempt failed for a reason of ours: not scored."""
    infra_failures: int
    """Failed attempts, of all trials."""
    unplanned: int
    """Records whose task, model or arm is not in the plan: left out."""


class Replies(Record):
    """Where the students' replies came from."""

    recorded: int
    live: int
    model_labels: tuple[str, ...]
    """As the providers or recordings name them."""
    first: str | None
    last: str | None
    """Dates (UTC, ISO 8601) of the first and last reply."""


class Timings(Record):
    """What the run's time went into; None where nothing was timed."""

    reply: Quartiles | None
    build: Quartiles | None
    """Wall time of builds that were not in the cache."""
    compiler: Quartiles | None
    """Sum of compile and link commands, per build that ran them."""
    grade: Quartiles | None
    cache_hits: int
    builds: int


class ArmSummary(Record):
    """One model in one arm, on its own."""

    model: str
    arm: str
    kind: str
    label: str
    """For people: `without skill`, or the skill's name."""
    planned: int
    scored: int
    infra_trials: int
    infra_failures: int
    compiled: Rate | None
    """None when the build stage was not measured in this run."""
    correct: Rate | None
    """None when correctness was not measured in this run."""
    faster: int | None
    """Correct and distinguishably faster than the reference."""
    alike: int | None
    """Correct and not distinguishable from the reference."""
    slower: int | None
    """Correct and distinguishably slower than the reference."""
    noisy: int
    """Timed on a noisy host: counted, never ranked."""
    fast_p: tuple[float, ...] | None
    """Share of all scored trials that are correct and faster than each threshold (KernelBench's fast_p)."""
    usage: Usages
    """Of scored trials."""
    tokens_per_correct: float | None
    cost_usd_per_correct: float | None


class TaskLift(Record):
    """One task's difference: points of share as a fraction, or a ratio."""

    task: str
    lift: float


class FamilyLift(Record):
    """One family's difference; its interval (from 3 tasks up) takes tasks as independent: descriptive."""

    family: str
    lift: float
    low: float | None
    high: float | None
    tasks: tuple[TaskLift, ...]


class MetricRow(Record):
    """One metric in one comparison: means over families of task means, and their difference.

    Unit `share`: fractions, lift is a difference (0 = no change). Unit `ratio`: speedups, lift is a
    ratio (1 = no change).
    """

    metric: MetricName
    label: str
    unit: Unit
    role: Literal["primary", "secondary", "descriptive"]
    """Secondary p values are Holm-adjusted together; descriptive rows are not tested."""
    control: float | None
    treatment: float | None
    lift: float | None
    low: float | None
    high: float | None
    """95 % t interval by family."""
    p_value: float | None
    """Sign-flip test by family."""
    p_holm: float | None
    """Of secondary rows; None for the primary one, which is not adjusted."""
    n_families: int
    n_tasks: int
    n_dropped_tasks: int
    """Tasks without a value in both arms."""
    per_family: tuple[FamilyLift, ...]
    not_measured: str | None
    """Why, when this metric was not measured in this run."""


class FastPoint(Record):
    """Share correct and faster than a threshold: means over families, with the paired lift."""

    threshold: float
    control: float
    treatment: float
    lift: float
    low: float | None
    high: float | None


class Conclusion(Record):
    """The decision about a skill."""

    decision: Literal["helps", "hurts", "inconclusive"]
    metric: Literal["deployed", "correct", "compiles"]
    reason: str
    p_adjusted: float | None
    """Holm-adjusted over the comparisons with the same kind of control; None when there is only one."""


class Comparison(Record):
    """One model, with_skill against one control."""

    model: str
    treatment: str
    control: str
    placebo: str | None
    """Arm ids."""
    label: str
    """The skill, for people."""
    control_label: str
    rows: tuple[MetricRow, ...]
    fast_p: tuple[FastPoint, ...]
    placebo_row: MetricRow | None
    """with_skill minus placebo on the primary metric."""
    infra_p: float
    """Fisher's exact test of equal shares lost to infra in both arms."""
    conclusion: Conclusion
    caveats: tuple[str, ...]

    def row(self, metric: MetricName) -> MetricRow:
        """The row of a metric."""
        return next(row for row in self.rows if row.metric == metric)


class Detectable(Record):
    """What this study could detect, from its plan alone."""

    n_families: int
    sd: float
    """Assumed between families: of the log ratio for deployed, of the share otherwise."""
    effect: float | None
    """A ratio for deployed, else a fraction; None with fewer than 2 families."""
    statement: str


class TaskCell(Record):
    """One task in one arm."""

    arm: str
    n: int
    compiled: int | None
    correct: int | None
    median_speedup: float | None
    """Of correct trials."""
    verdicts: dict[str, int]
    trials: tuple[int, ...]
    """Positions in Summary.trials."""


class TaskRow(Record):
    """One task and model over the arms."""

    task: str
    family: str
    model: str
    cells: tuple[TaskCell, ...]


class TrialRow(Record):
    """One finished trial."""

    task: str
    family: str
    model: str
    arm: str
    repeat: int
    verdict: Verdict
    stage: Stage | None
    cause: Cause
    headline: str
    """First line of the message."""
    message: str
    """The message, up to 4,000 characters."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What a failed build or import says, file by file."""
    build_wall_s: float | None
    compiler_s: float | None
    cache_hit: bool | None
    jit: bool = False
    """A universal project, which compiles when it runs."""
    calls: tuple[str, ...] = ()
    """Names behind the flags about calls, where the task minds."""
    kernels: tuple[DeviceKernel, ...] | None = None
    """As compiled, the longest programs first; None on cpu and where they were not measured."""
    worst_error: float | None
    """Largest |y - truth| / tolerance over all workloads."""
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    flags: tuple[str, ...]
    tokens: int | None
    cost_usd: float | None
    folder: str
    """Relative to the run folder."""


class ArmCount(Record):
    """A count in one arm, over all models."""

    arm: str
    count: int


class FailureGroup(Record):
    """Trials that failed for the same cause."""

    cause: Cause
    verdict: Verdict
    counts: tuple[ArmCount, ...]
    total: int
    example: str
    """The first compiler error where there is one, else the first line of a message."""
    example_task: str


class BuildFailureGroup(Record):
    """Failed builds whose first error is of one kind; each build counts once."""

    kind: DiagnosticKind
    counts: tuple[ArmCount, ...]
    total: int
    example: str
    """Place and message of the first one."""
    example_task: str


class Summary(Record):
    """Everything a report says about one run."""

    schema_version: Literal[1] = REPORT_SCHEMA_VERSION
    head: Head
    progress: Progress
    replies: Replies
    totals: Usages
    """Of every reply, scored or not."""
    timings: Timings
    build_gap: Gap | None
    """Why compiling was not measured; None when it was."""
    check_gap: Gap | None
    """Why correctness and speed were not measured; None when they were."""
    detectable: Detectable
    warnings: tuple[str, ...]
    arms: tuple[ArmSummary, ...]
    comparisons: tuple[Comparison, ...]
    tasks: tuple[TaskRow, ...]
    failures: tuple[FailureGroup, ...]
    build_failures: tuple[BuildFailureGroup, ...] = ()
    trials: tuple[TrialRow, ...]

    def arm(self, model: str, arm: str) -> ArmSummary:
        """One model in one arm."""
        return next(a for a in self.arms if (a.model, a.arm) == (model, arm))
