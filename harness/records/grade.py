"""Records of a grade: its correctness check, traced calls and sanitizer runs."""

from __future__ import annotations

from typing import Final, Literal, Self, get_args

from pydantic import Field, model_validator

from harness.outcome import Cause, Stage, Verdict
from harness.records.base import SCHEMA_VERSION, Precision, Protocol, Record, Target
from harness.records.build import BuildResult
from harness.records.project import COPIED, Finding, Provenance
from harness.records.timing import TimingResult

OperatorKind = Literal["own", "harmless", "compute"]
SanitizerTool = Literal["memcheck", "racecheck", "initcheck", "synccheck"]
SANITIZER_TOOLS: tuple[SanitizerTool, ...] = get_args(SanitizerTool)
SanitizerStatus = Literal["clean", "findings", "not_present", "timed_out", "not_measured"]
LITTLE_OF_ITS_OWN: Final = 0.5
"""A smaller share of device time in the project's own kernels is flagged. Chosen, not calibrated."""
LOADS_CODE: Final = "loads code at run time"
"""Flag of a library that imports dlopen, and of Python that loaded a library."""


class OperatorCalls(Record):
    name: str
    calls: int
    kind: OperatorKind
    """`own`: of the project's library; `harmless`: allocates, inspects, moves or fills memory."""


class TracedKernel(Record):
    """One kernel, copy or fill that a traced call ran on the device, as the worker reports it."""

    name: str
    launches: int
    device_us: float
    own: bool | None
    """Whether the project's library has a kernel of this name; None where unknown, and for copies."""
    copy_or_fill: bool = False


class Evidence(Record):
    """Trace of one call in a fresh worker after the check. The worker reports it, so what it admits counts
    and what it omits proves nothing."""

    workload: str
    dtype: str
    operators: tuple[OperatorCalls, ...] | None
    kernels: tuple[TracedKernel, ...] | None = None
    """Longest first; None on cpu, and where they were not measured (`notes`)."""
    loads: tuple[str, ...] = ()
    """Libraries, functions and native modules that its Python loaded, other than its own and torch's."""
    traced_right: bool | None = None
    trouble: str | None = None
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _trace_or_trouble(self) -> Self:
        if (self.operators is None) != (self.trouble is not None):
            raise ValueError("evidence is a trace, or says why there is none")
        return self

    @property
    def computing(self) -> tuple[str, ...]:
        return tuple(o.name for o in self.operators or () if o.kind == "compute")

    @property
    def launches(self) -> int | None:
        """Kernel launches in the call, without copies and fills."""
        if self.kernels is None:
            return None
        return sum(k.launches for k in self.kernels if not k.copy_or_fill)

    @property
    def own_share(self) -> float | None:
        """Share of device time in the project's own kernels, 0 to 1; None where unknown."""
        total = sum(k.device_us for k in self.kernels or ())
        known = all(k.own is not None or k.copy_or_fill for k in self.kernels or ())
        if total <= 0 or not known:
            return None
        return sum(k.device_us for k in self.kernels or () if k.own) / total

    @property
    def flags(self) -> tuple[str, ...]:
        share = self.own_share
        found = {
            "dispatches PyTorch operators": bool(self.computing),
            LOADS_CODE: bool(self.loads),
            "little device time in its own kernels": share is not None and share < LITTLE_OF_ITS_OWN,
            "differs when traced": self.traced_right is False,
            "not traced": self.trouble is not None,
        }
        return tuple(name for name, true in found.items() if true)


class SanitizerFinding(Record):
    """One message of a sanitizer, which runs inside the worker and can be forged by it."""

    message: str
    kernel: str | None = None
    """None where the tool names none (a failed API call)."""
    count: int = 1


class SanitizerRun(Record):
    """One compute-sanitizer tool on the smallest workload that is not trivial."""

    tool: SanitizerTool
    status: SanitizerStatus
    total: int | None = None
    """Errors and hazards in the tool's summary (with racecheck's warnings); None without a summary."""
    findings: tuple[SanitizerFinding, ...] = ()
    message: str | None = None
    workload: str | None = None
    wall_s: float | None = None

    @model_validator(mode="after")
    def _findings_iff_found(self) -> Self:
        if self.findings and self.status not in ("findings", "timed_out"):
            raise ValueError(f"a sanitizer run that is {self.status} has no findings")
        if self.status in ("not_present", "not_measured") and self.message is None:
            raise ValueError(f"a sanitizer run that is {self.status} says why")
        return self


_BEFORE_CHECK: Final = (Stage.PROJECT, Stage.BUILD, Stage.LOAD)
GRADER_VERSION: Final = "11"
"""Part of every grading key; raised when the same project may be graded differently.

9: a block is one visit; t1 is when all had stopped, not when that was confirmed. 10: references give a
reveal's constant. 11: every guard band has another byte; larger batches of a GPU are warmed up."""
SCALED: Final = "scaled"
REPEATED: Final = "repeated after a kill"
KNOWN_SEED: Final = "known seed"
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
    hidden: bool = False
    dims: dict[str, int] | None = None
    """Sizes; None in records older than hidden shapes."""
    where: tuple[int, ...] | None = None
    output: str | None = None
    skipped: str | None = None
    rows: tuple[int, int] | None = None
    """(rows of a call compared with the truth, all rows) of a problem that is judged by rows, else None."""


class CheckResult(Record):
    workloads: tuple[WorkloadCheck, ...]
    finding: Finding | None
    """The first failure; None exactly when everything passed."""
    not_run: tuple[str, ...] = ()
    precision: Precision | None = None
    seed: str | None = None
    """64 hex digits, of which shapes and inputs were drawn; secret until the check had ended."""


EmulatedOutcome = Literal[
    "correct", "wrong_result", "crashed", "race", "deadlock", "timed_out", "cannot_emulate"
]


class EmulatedFinding(Record):
    """What the emulated GPU saw first. It runs inside the worker, which can forge it."""

    kind: str
    message: str
    kernel: str | None = None
    """Demangled where that is known; None outside a launch."""
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    address: int | None = None
    instruction: str | None = None
    source: str | None = None
    """file:line, where the project was compiled with -lineinfo."""


class EmulatedCheck(Record):
    """Correctness of a CUDA project on the emulated GPU, on the CPU target's shapes. Never a GPU's result:
    `correct` means right under the schedules that were tried."""

    outcome: EmulatedOutcome
    message: str
    finding: EmulatedFinding | None = None
    check: CheckResult | None = None
    """The judge's comparison; None where it did not come to that."""
    wall_s: float

    @model_validator(mode="after")
    def _correct_iff_checked(self) -> Self:
        passed = self.check is not None and self.check.finding is None and self.finding is None
        if (self.outcome == "correct") != passed:
            raise ValueError("`correct` on the emulated GPU means a passed check without findings")
        return self


class KernelBenchScore(Record):
    """Score of a converted KernelBench problem by KernelBench's own rules: shown, never ranked."""

    trials: int
    passed: int
    correct: bool
    tolerance: float
    calls: int = 0
    claimed_us: float | None = None
    """By the worker's own clock, which these rules trust; None: not correct, or no claim."""
    eager_us: float | None = None
    message: str | None = None

    @property
    def speedup(self) -> float | None:
        """Over eager PyTorch; None where it is not correct or was not timed."""
        if not self.correct or not self.claimed_us or self.eager_us is None:
            return None
        return self.eager_us / self.claimed_us


class Place(Record):
    """Where a project was graded."""

    node: str
    """Host name."""
    gpu_uuid: str | None = None
    driver: str | None = None
    device: str | None = None
    """Model of the GPU, or of the CPU for the target cpu; None in older records."""


class Grade(Record):
    schema_version: Literal[1] = SCHEMA_VERSION
    task: str
    task_digest: str
    project: str | None
    target: Target
    protocol: Protocol
    verdict: Verdict
    stage: Stage
    """The stage that failed, or the first that was not run; when correct, `time` (`check` without timing)."""
    finding: Finding
    flags: tuple[str, ...] = ()
    """Of the library's calls, the trace, sanitizers, provenance and timing; never a verdict."""
    build: BuildResult | None = None
    check: CheckResult | None = None
    timing: TimingResult | None = None
    evidence: Evidence | None = None
    provenance: Provenance | None = None
    sanitizers: tuple[SanitizerRun, ...] = ()
    kernelbench: KernelBenchScore | None = None
    emulated: EmulatedCheck | None = None
    """Of a CUDA project that no GPU ran; None where it was not built, or not asked for."""
    sandbox: str
    sandbox_facts: dict[str, str] = Field(default_factory=dict)
    machine: str
    place: Place | None = None
    """None in records from before there were several machines."""
    wall_s: float

    @property
    def compiled(self) -> bool:
        return self.build is not None and self.build.ok

    @property
    def not_built(self) -> bool:
        return self.stage is Stage.BUILD and self.verdict is not Verdict.NOT_MEASURED

    @property
    def correct(self) -> bool | None:
        """None when correctness was not measured."""
        return None if self.verdict is Verdict.NOT_MEASURED else self.verdict is Verdict.CORRECT

    @property
    def correct_emulated(self) -> bool | None:
        """Correct on the emulated GPU: False where nothing could be loaded; None where it could not say, or
        was not asked."""
        if self.emulated is None:
            failed = self.verdict is not Verdict.NOT_MEASURED and self.stage in _BEFORE_CHECK
            return False if failed else None
        return None if self.emulated.outcome == "cannot_emulate" else self.emulated.outcome == "correct"

    @property
    def copied(self) -> bool:
        return COPIED in self.flags

    @property
    def flags_of_work(self) -> tuple[str, ...]:
        """Flags of what the project does: not of its source, of timing, or of a repetition."""
        others = {COPIED, KNOWN_SEED, REPEATED, SCALED, *(() if self.timing is None else self.timing.flags)}
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
        if self.emulated is not None and self.verdict is not Verdict.NOT_MEASURED:
            raise ValueError("what a GPU measured is not emulated")
        if self.verdict is Verdict.INFRA:
            raise ValueError("infra is a failed attempt, not a grade")
        return self
