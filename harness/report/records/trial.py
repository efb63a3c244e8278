"""What a report says about tasks, trials and failures.

Text that a student or provider wrote has been cleaned of control characters.
"""

from __future__ import annotations

from harness.outcome import Cause, Stage, Verdict
from harness.records import DeviceKernel, Diagnostic, DiagnosticKind, Record


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
    leaked: bool = False
    """A skill repeats its reference: shown here, counted nowhere else."""


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
    evidence: tuple[str, ...] = ()
    """What stands beside the verdict, in words: a traced call, sanitizers, the physical limit."""
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
