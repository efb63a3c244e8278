"""The frozen records that flow through liftbench, from task to trial.

Owns: the shape of every stored fact. Does not own: any behaviour beyond validation and digests.
Invariant: a record that exists is legal; "not reached" is None, unknown is None, never -1 or 0.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from harness.outcome import POLICY, Cause, Stage, Verdict

SCHEMA_VERSION: Final = 1

Target = Literal["cuda", "cpu"]
Protocol = Literal["quick", "full"]
Role = Literal["in", "out", "inout", "partial"]


def digest_of(value: Any) -> str:
    """SHA-256 (hex) of a JSON-able value in canonical form: sorted keys, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


class Record(BaseModel):
    """Base of all records: frozen, unknown fields refused, infinities and NaN refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


# --- tasks -----------------------------------------------------------------------------------


class Operand(Record):
    """One tensor in an op's signature."""

    name: str
    role: Role
    """`out` is only written, `in` only read, `inout` both, `partial` written where `mask` is true."""
    shape: tuple[str, ...]
    """One arithmetic expression over the workload's dims per axis; () is a scalar tensor."""
    dtype: str = "$dtype"
    """A torch dtype name, or `$dtype` for the workload's dtype."""
    mask: str | None = None
    """For `partial`: name of the boolean `in` operand of the same shape."""

    @model_validator(mode="after")
    def _mask_only_for_partial(self) -> Self:
        if (self.role == "partial") != (self.mask is not None):
            raise ValueError(f"operand {self.name}: `mask` is needed by, and only for, role partial")
        return self


class Scalar(Record):
    """One keyword-only scalar argument of an op."""

    name: str
    type: Literal["float", "int", "bool"]


class Workload(Record):
    """One concrete problem: sizes and scalar values; a dtype is added per target."""

    name: str
    dims: dict[str, int]
    scalars: dict[str, float | int | bool] = {}
    timed: bool = False
    """Whether speed is measured on it; every workload is checked."""


class Task(Record):
    """One kernel to write: a PyTorch reference, a signature, workloads and a tolerance."""

    name: str
    level: str
    family: str
    """Tasks that share an idea; inference is by family."""
    version: int
    title: str
    op: str
    """Name of the Python function that the project's package exports."""
    package: str
    """`general.name` of the project; the Python package is this with `_` for `-`."""
    semantics: str
    """What the op computes, as the student reads it (Markdown)."""
    operands: tuple[Operand, ...]
    """In call order: all `out` first, then the rest."""
    scalars: tuple[Scalar, ...] = ()
    workloads: tuple[Workload, ...]
    dtypes: dict[Target, tuple[str, ...]]
    tolerance: Literal["elementwise", "reduction", "contraction", "exact"]
    flops: str | None = None
    """Arithmetic expression over dims; None where counting operations says nothing."""
    library_calls: Literal["forbid", "flag", "allow"] = "flag"
    """What it means when a project's library calls PyTorch operators that compute, cuBLAS or the like:
    a failure (the student is told beforehand), a flag beside the result, or nothing."""
    digest: str
    """Over task.toml and reference.py, byte for byte."""

    @property
    def id(self) -> str:
        """`level/name`, as the user types it."""
        return f"{self.level}/{self.name}"

    @property
    def module(self) -> str:
        """The Python package that the project must export."""
        return self.package.replace("-", "_")

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """Operands whose contents the judge checks, in call order."""
        return tuple(o for o in self.operands if o.role != "in")

    @model_validator(mode="after")
    def _outs_first(self) -> Self:
        roles = [o.role == "out" for o in self.operands]
        if roles != sorted(roles, reverse=True):
            raise ValueError(f"task {self.name}: `out` operands come first")
        if not any(o.role != "in" for o in self.operands):
            raise ValueError(f"task {self.name}: nothing is written")
        if not any(w.timed for w in self.workloads):
            raise ValueError(f"task {self.name}: no workload is timed")
        by_name = {o.name: o for o in self.operands}
        for operand in self.operands:
            mask = by_name.get(operand.mask or "")
            if operand.mask is not None and (
                mask is None or (mask.role, mask.dtype, mask.shape) != ("in", "bool", operand.shape)
            ):
                raise ValueError(
                    f"task {self.name}: the mask of {operand.name} must be an `in` operand, bool, same shape"
                )
        names = [o.name for o in self.operands] + [s.name for s in self.scalars]
        if len(set(names)) != len(names):
            raise ValueError(f"task {self.name}: operand and scalar names repeat")
        return self


# --- skills and arms -------------------------------------------------------------------------


class Skill(Record):
    """An Agent Skill as the student may see it."""

    name: str
    description: str
    body: str
    """SKILL.md without its frontmatter."""
    files: tuple[str, ...]
    """Relative paths of all files, sorted."""
    digest: str
    """Over all files, paths and bytes."""


class Arm(Record):
    """What is held different between trials: which skill text, if any, the student is given."""

    kind: Literal["without_skill", "with_skill", "placebo", "old_skill"]
    skills: tuple[str, ...] = ()
    """Digests, in the order in which they are presented."""
    delivery: Literal["body", "disclosed"] = "body"

    @property
    def id(self) -> str:
        """Short and stable: the kind, then 8 hex digits where a skill or delivery matters."""
        if self.kind == "without_skill":
            return "without_skill"
        return f"{self.kind}-{digest_of([list(self.skills), self.delivery])[:8]}"

    @model_validator(mode="after")
    def _skills_fit_kind(self) -> Self:
        if (self.kind == "without_skill") != (not self.skills):
            raise ValueError(f"arm {self.kind}: skills do not fit the kind")
        return self


# --- generation ------------------------------------------------------------------------------


class Sampling(Record):
    """What is asked of a model beside the messages; None leaves the provider's default."""

    max_output_tokens: int = 16_000
    temperature: float | None = None
    seed: int | None = None


class ModelSpec(Record):
    """A model as the user names it: `provider/model`, and where to reach it."""

    name: str
    base_url: str | None = None

    @property
    def provider(self) -> str:
        """The part before the first slash."""
        return self.name.partition("/")[0]

    @property
    def model(self) -> str:
        """The part after the first slash."""
        return self.name.partition("/")[2]

    @property
    def slug(self) -> str:
        """Safe as a folder name."""
        return "".join(c if c.isalnum() or c in "-._" else "-" for c in self.name).strip("-.")

    @model_validator(mode="after")
    def _has_both_parts(self) -> Self:
        if not self.provider or not self.model:
            raise ValueError(f"model {self.name!r}: expected provider/model, such as openai/gpt-5-mini")
        return self


class Message(Record):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Request(Record):
    """One call to a model: the whole prompt, and which trial it is for."""

    messages: tuple[Message, ...]
    sampling: Sampling
    task: str
    arm: str
    """Arm.id; never part of the prompt."""
    repeat: int
    turn: int = 0

    @property
    def prompt_digest(self) -> str:
        """Over the messages only: what the student reads."""
        return digest_of([[m.role, m.content] for m in self.messages])


class Usage(Record):
    """Tokens as the provider counts them; None is unknown. Cached and reasoning are parts, not additions."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None


class Reply(Record):
    """What a model answered."""

    text: str
    stop: Literal["end", "length", "refusal", "other"]
    model_label: str
    """The model as the provider (or the recording) names it."""
    created: str
    """UTC, ISO 8601."""
    usage: Usage = Usage()
    cost_usd: float | None = None
    latency_s: float | None = None
    recorded: bool = False
    """Replayed from a recording rather than asked now."""

    @field_validator("text")
    @classmethod
    def _is_unicode(cls, text: str) -> str:
        """Half of a surrogate pair, which JSON may carry, cannot be stored: it becomes U+FFFD."""
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# --- projects --------------------------------------------------------------------------------


class Finding(Record):
    """Why something of the student's fell short: data, not an exception."""

    cause: Cause
    message: str
    """What happened, where, and what was expected; first line stands alone."""

    @property
    def verdict(self) -> Verdict:
        """The verdict that the policy table gives to the cause."""
        return POLICY[self.cause].verdict


class ProjectFile(Record):
    """One file of a project."""

    path: str
    """Relative, POSIX, inside the project."""
    text: str


class Project(Record):
    """A kernel-builder project: text files (project.py and catalogue.py say how many and how large)."""

    files: tuple[ProjectFile, ...]
    """Sorted by path; paths are unique."""
    left_out: dict[str, str] = {}
    """Path -> why what lies there is no part of it (`is a symbolic link`); empty for a reply."""

    @property
    def digest(self) -> str:
        """Over paths and contents of the files."""
        return digest_of([[f.path, f.text] for f in self.files])

    @model_validator(mode="after")
    def _sorted_and_unique(self) -> Self:
        paths = [f.path for f in self.files]
        if paths != sorted(set(paths)):
            raise ValueError("project files must be sorted by path and unique")
        return self


# --- grading ---------------------------------------------------------------------------------


DiagnosticKind = Literal[
    "build_toml",
    "layout",
    "flag_refused",
    "missing_header",
    "syntax",
    "wrong_arch",
    "binding_mismatch",
    "linker",
    "timeout",
    "out_of_memory",
    "other",
]


class Diagnostic(Record):
    """The first error of one file of a build."""

    kind: DiagnosticKind
    """`syntax` is whatever a compiler's front end refuses, types included."""
    message: str
    """The tool's own words, one line, without this machine's paths."""
    file: str | None = None
    """Relative to the project, or `torch/...`, `cuda/...`; None where no file is to blame."""
    line: int | None = None
    """1-based."""
    column: int | None = None
    source: str | None = None
    """The text of that line."""
    advice: str | None = None
    """What to do about it, in liftbench's words."""


class DeviceKernel(Record):
    """One CUDA kernel as it was compiled: evidence of what was really written."""

    name: str
    """Demangled."""
    architecture: str
    """Such as sm_90a."""
    registers: int
    """Per thread."""
    shared_bytes: int
    """Static shared memory per block; what a launch adds is not known here."""
    stack_bytes: int
    """Local memory per thread, callees included where the compiler knows them."""
    spill_store_bytes: int | None = None
    """Per thread, of the store instructions that the compiler marked as spills, as `ptxas -v` counts
    them; None where it marks none or the instructions were not read."""
    spill_load_bytes: int | None = None
    instructions: dict[str, int] | None = None
    """SASS instructions in the code, not executions, by class (harness.builder.binary.cubins.CLASSES; a class
    that is not there is 0), `all` for their number without NOPs; None where they were not read."""


class BinaryCalls(Record):
    """What a shared library calls, by its undefined symbols and the operator names in it; qualified
    names, sorted, at most 100 each."""

    compute: tuple[str, ...] = ()
    """PyTorch operators that compute, such as `at::_ops::matmul::call` or `aten::mm (by name)`."""
    library: tuple[str, ...] = ()
    """cuBLAS, cuDNN, MKL and their kin."""
    dispatcher: tuple[str, ...] = ()
    """Ways to call any operator by name; `compute` has the names that were found."""
    tensor: tuple[str, ...] = ()
    """Allocation, views, properties and registration."""
    runtime: tuple[str, ...] = ()
    """CUDA runtime and driver."""
    system: tuple[str, ...] = ()
    """Loading, processes, files, network."""
    unresolved: tuple[str, ...] = ()
    """No library that is loaded beside torch has them: the import fails. As they read, with what the
    library defines instead."""
    unproven: int = 0
    """Symbols that only a CUDA build of torch could have; not checked with a CPU-only one."""

    @property
    def borrowed(self) -> tuple[str, ...]:
        """The names behind the flags: what may do the project's work for it."""
        return (*self.compute, *self.library, *self.dispatcher, *self._loaders)

    @property
    def _loaders(self) -> tuple[str, ...]:
        return tuple(n for n in self.system if n in ("dlopen", "dlmopen", "dlsym", "dlvsym"))

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader of a speedup should know: work that is not the project's own, or may not be."""
        python = any(name.lstrip("_").startswith("Py") for name in self.dispatcher)
        named = any(name.endswith(" (by name)") for name in (*self.compute, *self.tensor))
        found = {
            "calls PyTorch operators": bool(self.compute),
            "calls a library": bool(self.library),
            "may call any operator": bool(self.dispatcher) and (python or not named),
            "loads code at run time": bool(self._loaders),
        }
        return tuple(name for name, true in found.items() if true)


class BuildResult(Record):
    """What the build stage found."""

    ok: bool
    finding: Finding | None
    """None exactly when ok."""
    backend: Target
    key: str
    """Content key of the build: project, target, toolchain, flags."""
    cache_hit: bool
    wall_s: float
    """Of this request; near 0 on a cache hit."""
    compiler_s: float | None
    """Sum of the wall time of compile and link commands when it was built; None if none ran."""
    units: int | None = None
    """Number of translation units; None when planning failed."""
    variant: str | None = None
    """kernel-builder's variant name, such as torch-stable-abi210-cu130-x86_64-linux."""
    module: str | None = None
    """The Python package in the variant."""
    architectures: tuple[str, ...] = ()
    """Such as sm_90; empty on cpu."""
    jit: bool = False
    """A universal project: nothing was compiled here, and its worker runs in role run_jit."""
    abi: str | None = None
    """What the ABI check said; None when it did not run."""
    warnings: tuple[str, ...] = ()
    toolchain: dict[str, str] = {}
    diagnostics: tuple[Diagnostic, ...] = ()
    """First error of each file that has one; empty when ok, unless the library could not be loaded."""
    kernels: tuple[DeviceKernel, ...] | None = None
    """The longest programs first; None on cpu, and where `warnings` says why they were not measured."""
    calls: BinaryCalls | None = None
    """None when nothing was linked."""

    @model_validator(mode="after")
    def _finding_iff_failed(self) -> Self:
        if self.ok == (self.finding is not None):
            raise ValueError("a build has a finding exactly when it failed")
        return self


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
    sandbox_facts: dict[str, str] = {}
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


# --- trials and runs -------------------------------------------------------------------------


class Turn(Record):
    """One exchange with the student and what became of it."""

    index: int
    prompt_digest: str
    reply: Reply
    project: str | None
    """Project digest."""
    grade: Grade | None
    """None when grading failed for a reason of ours (TrialRecord.infra says which)."""


class TrialKey(Record):
    """Which trial: the coordinates in a run."""

    task: str
    model: str
    """ModelSpec.name."""
    arm: str
    """Arm.id."""
    repeat: int
    """From 0."""

    @property
    def folder(self) -> str:
        """Where its files lie in the run's folder."""
        return f"trials/{self.task}/{ModelSpec(name=self.model).slug}/{self.arm}/{self.repeat}"


class InfraFailure(Record):
    """A failure of ours during one attempt."""

    cause: Cause
    message: str
    at: str
    """UTC, ISO 8601."""

    @model_validator(mode="after")
    def _is_ours(self) -> Self:
        if POLICY[self.cause].verdict is not Verdict.INFRA:
            raise ValueError(f"{self.cause} is not an infrastructure failure")
        return self


class TrialRecord(Record):
    """One finished trial: a line of trials.jsonl."""

    schema_version: Literal[1] = SCHEMA_VERSION
    key: TrialKey
    generation_key: str
    """Digest of prompt, model, sampling and repeat: what was paid for."""
    grading_key: str | None
    """Digest of project, task, grader version, image and device; None when there was no project."""
    turns: tuple[Turn, ...]
    failures: tuple[InfraFailure, ...] = ()
    """Of every attempt, in order; attempts = failures + 1 unless the last one failed too."""
    infra: bool = False
    """Every attempt failed: not scored."""
    started: str
    finished: str

    @property
    def grade(self) -> Grade | None:
        """The grade that counts: the last turn's."""
        return self.turns[-1].grade if self.turns else None

    @property
    def verdict(self) -> Verdict:
        """The trial's verdict."""
        grade = self.grade
        return Verdict.INFRA if self.infra or grade is None else grade.verdict

    @model_validator(mode="after")
    def _graded_unless_infra(self) -> Self:
        if self.infra and not self.failures:
            raise ValueError("an infra trial records its failures")
        if not self.infra and (not self.turns or self.turns[-1].grade is None):
            raise ValueError("a trial that did not fail for us has a grade")
        return self


class MachineFacts(Record):
    """The machine that graded; None is absent or unknown."""

    platform: str
    python: str
    cpu: str
    cpu_count: int
    torch: str | None
    gpu: str | None = None
    gpu_uuid: str | None = None
    driver: str | None = None
    cuda: str | None = None
    """CUDA version of the nvcc in use."""
    nvcc: str | None = None
    gxx: str | None = None

    @property
    def digest(self) -> str:
        """12 hex digits: the same machine and software give the same one."""
        return digest_of(self.model_dump())[:12]


class RunConfig(Record):
    """A resolved `eval`: everything that decides which trials there are and how they are judged."""

    tasks: tuple[str, ...]
    skills: tuple[str, ...]
    """Names as the user gave them, for display; the arms hold the digests."""
    models: tuple[ModelSpec, ...]
    arms: tuple[Arm, ...]
    repeats: int
    target: Target
    protocol: Protocol
    sandbox: str
    sampling: Sampling
    turns: int = 1
    metric: Literal["deployed", "correct", "compiles"]
    """The primary metric, fixed before the run."""
    seed: int
    """Of the order of trials; nothing secret is drawn from it."""


class RunLock(Record):
    """What the run was pinned to: a resume with other digests is refused."""

    grader_version: str
    tasks: dict[str, str]
    """Task id to digest."""
    families: dict[str, str]
    """Task id to family: a report must not need the task folders."""
    skills: dict[str, str]
    """Skill name to digest, for every skill of every arm."""
    prompts: dict[str, str]
    """`task/arm` to prompt digest."""
    machine: MachineFacts
    image: str | None = None
    """Sandbox image digest, where there is one."""


class RunRecord(Record):
    """run.json: what a run is."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    created: str
    config: RunConfig
    lock: RunLock
