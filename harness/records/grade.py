"""Records of a grade and of its correctness check."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from harness.outcome import Cause, Stage, Verdict
from harness.records.base import SCHEMA_VERSION, Precision, Protocol, Record, Target
from harness.records.build import BuildResult
from harness.records.evidence import Evidence, SanitizerRun
from harness.records.project import COPIED, Finding, Provenance
from harness.records.timing import TimingResult

GRADER_VERSION: Final = "5"
"""Part of every grading key; raised when the same project may be graded differently."""
SCALED: Final = "scaled"
"""Flag: the first axis of the problem was reduced for this target; never ranked."""
REPEATED: Final = "repeated after a kill"
"""Flag: a worker died by a signal that may have come from outside, and grading was repeated."""
_EARLIER: Final = frozenset({(Cause.BUILD_TIMEOUT, Verdict.BUILD_FAILED)})
"""Verdicts of causes in records of grader versions up to 4."""


class WorkloadCheck(Record):
    """Correctness of one case (workload, dtype, kind of values, layout), over all its calls."""

    workload: str
    dtype: str
    calls: int
    worst_error: float | None
    """Largest |y - truth| / tolerance over all elements; None when no values could be compared."""
    allowed_error: float | None
    """Limit of worst_error: 1, or 4 x the error of the reference where that is larger and was needed."""
    worst_absolute: float | None
    finding: Finding | None
    values: str = "task"
    """`task`: drawn by the task's make_inputs; `integers`: the exact lane; else an adversarial kind."""
    layout: str = "contiguous"
    """Memory layout of the operands."""
    hidden: bool = False
    """The shape was drawn at grading time."""
    dims: dict[str, int] | None = None
    """Sizes; None in records older than hidden shapes."""
    where: tuple[int, ...] | None = None
    """Index of the worst element, where values were out of tolerance."""
    output: str | None = None
    """Output that `where` is an index of."""
    skipped: str | None = None
    """Why values were not judged, such as a truth that the dtype cannot hold."""
    rows: tuple[int, int] | None = None
    """(rows of a call compared with the truth, all rows) of a problem that is judged by rows, else None."""


class CheckResult(Record):
    """Correctness over all workloads: one entry per case."""

    workloads: tuple[WorkloadCheck, ...]
    finding: Finding | None
    """The first failure; None exactly when everything passed."""
    not_run: tuple[str, ...] = ()
    """Workloads after a failure that ended the worker."""
    precision: Precision | None = None
    """Rules for float32: `strict`, or `tf32` where the task allows it."""


class KernelBenchScore(Record):
    """Score of a converted KernelBench problem by KernelBench's own rules: shown, never ranked."""

    trials: int
    passed: int
    """Trials whose outputs were allclose to eager PyTorch's."""
    correct: bool
    """All trials passed."""
    tolerance: float
    """Absolute and relative."""
    calls: int = 0
    """Calls behind the mean: 100 by the rules, fewer where they are slow."""
    claimed_us: float | None = None
    """Mean time of a call by the worker's own clock, which these rules trust; None: not correct, or no
    claim."""
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
    """The stage that failed, or the first that was not run; when correct, `time` (`check` without timing)."""
    finding: Finding
    flags: tuple[str, ...] = ()
    """From the library's calls and the trace (unless the task allows them), sanitizers, provenance and
    timing; they never change a verdict."""
    build: BuildResult | None = None
    check: CheckResult | None = None
    timing: TimingResult | None = None
    evidence: Evidence | None = None
    """Trace of one call; None when it was not wanted or not reached."""
    provenance: Provenance | None = None
    """Source in common with kernels_ref; None without a project, and in older records."""
    sanitizers: tuple[SanitizerRun, ...] = ()
    """Empty unless they were requested."""
    kernelbench: KernelBenchScore | None = None
    """None for other tasks, without timing, and where nothing could run."""
    sandbox: str
    sandbox_facts: dict[str, str] = Field(default_factory=dict)
    machine: str
    """MachineFacts.digest of the machine that graded."""
    wall_s: float

    @property
    def compiled(self) -> bool:
        """Whether the build succeeded."""
        return self.build is not None and self.build.ok

    @property
    def not_built(self) -> bool:
        """Whether the project failed in the build stage."""
        return self.stage is Stage.BUILD and self.verdict is not Verdict.NOT_MEASURED

    @property
    def correct(self) -> bool | None:
        """None when correctness was not measured."""
        return None if self.verdict is Verdict.NOT_MEASURED else self.verdict is Verdict.CORRECT

    @property
    def copied(self) -> bool:
        """Whether it is flagged for source in common with kernels_ref."""
        return COPIED in self.flags

    @property
    def flags_of_work(self) -> tuple[str, ...]:
        """Flags of what the project does: not of its source, of timing, or of a repetition."""
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
