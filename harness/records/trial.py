"""Records of trials, machines and runs."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from harness.outcome import Cause, Verdict
from harness.records.base import SCHEMA_VERSION, Briefing, Metric, Protocol, Record, Target, digest_of
from harness.records.grade import Grade
from harness.records.request import Arm, ModelSpec, Reply, Sampling


class Step(Record):
    prompt_digest: str
    reply: Reply
    reads: tuple[str, ...]
    """Files that it was given, as `skill/path`, in order; calls that named no file are omitted."""


class Turn(Record):
    index: int
    prompt_digest: str
    reply: Reply
    project: str | None
    grade: Grade | None
    """None when grading failed with an infrastructure failure (TrialRecord.failures), and before the last
    project of a trial that was graded again."""
    steps: tuple[Step, ...] = ()
    """Calls of the file tool before `reply`; paid for like it."""
    kept: bool = False
    """The previous turn's project and grade count: the student kept it, or ran out of context."""

    @property
    def replies(self) -> tuple[Reply, ...]:
        """All replies of this turn: what was paid for."""
        return (*(step.reply for step in self.steps), self.reply)


class TrialKey(Record):
    task: str
    model: str
    arm: str
    repeat: int

    @property
    def folder(self) -> str:
        return f"trials/{self.task}/{ModelSpec(name=self.model).slug}/{self.arm}/{self.repeat}"


class InfraFailure(Record):
    cause: Cause
    message: str
    at: str
    project: str | None = None

    @model_validator(mode="after")
    def _is_ours(self) -> Self:
        if self.cause.verdict is not Verdict.INFRA:
            raise ValueError(f"{self.cause} is not an infrastructure failure")
        return self


class TrialRecord(Record):
    schema_version: Literal[1] = SCHEMA_VERSION
    key: TrialKey
    generation_key: str
    """Digest of prompt, model, sampling and repeat: what was paid for."""
    grading_key: str | None
    """Digest of project, task, grader version, image and machine; None when there was no project."""
    turns: tuple[Turn, ...]
    failures: tuple[InfraFailure, ...] = ()
    infra: bool = False
    started: str
    finished: str

    @property
    def grade(self) -> Grade | None:
        return self.turns[-1].grade if self.turns else None

    @property
    def verdict(self) -> Verdict:
        grade = self.grade
        return Verdict.INFRA if self.infra or grade is None else grade.verdict

    @property
    def project_turn(self) -> int | None:
        """The last turn with a project of its own; None without one."""
        found = [turn.index for turn in self.turns if turn.project is not None and not turn.kept]
        return found[-1] if found else None

    @property
    def result(self) -> str:
        """The verdict, and beside it what the emulated GPU found."""
        emulated = self.grade.emulated if self.grade is not None else None
        return str(self.verdict) + (f" (emulated: {emulated.outcome})" if emulated is not None else "")

    @model_validator(mode="after")
    def _graded_unless_infra(self) -> Self:
        if self.infra and not self.failures:
            raise ValueError("an infra trial records its failures")
        if not self.infra and (not self.turns or self.turns[-1].grade is None):
            raise ValueError("a trial that did not fail for us has a grade")
        return self


class MachineFacts(Record):
    """Hardware and software of the grading machine; None is absent or unknown."""

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
        """Of the kind of machine: the same for all its GPUs, which are of one model."""
        return digest_of(self.model_dump() | {"gpu_uuid": None})[:12]


class RunSettings(Record):
    """How the trials of a run are sampled, judged and decided; a report repeats them."""

    repeats: int
    target: Target
    protocol: Protocol
    sandbox: str
    sampling: Sampling
    turns: int = 1
    briefing: Briefing = "full"
    """How much the prompts say of kernel-builder; runs from before there was a choice said all."""
    metric: Metric
    seed: int
    alpha: float = Field(default=0.05, gt=0.0, le=0.05)
    """Level of the decision: 0.05 / 2^k at the k-th evaluation of a skill's lineage on the same tasks."""


class RunConfig(RunSettings):
    """A resolved `eval`: everything that decides which trials exist and how they are judged."""

    tasks: tuple[str, ...]
    skills: tuple[str, ...]
    models: tuple[ModelSpec, ...]
    arms: tuple[Arm, ...]


class GraderFacts(Record):
    grader_version: str
    machine: MachineFacts
    image: str | None = None


class RunLock(GraderFacts):
    tasks: dict[str, str]
    families: dict[str, str]
    """Task id to family, so that a report does not need the task folders."""
    skills: dict[str, str]
    briefing: Briefing = "full"
    prompts: dict[str, str]
    """`task/arm` to prompt digest."""
    leaked: dict[str, str] = Field(default_factory=dict)
    """Task id to where a skill contains its reference or expert project; excluded from every comparison."""


class RunRecord(Record):
    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    created: str
    config: RunConfig
    lock: RunLock
    regraded_from: str | None = None
    """The run whose paid replies are graded again here; its models were not asked again."""

    @model_validator(mode="after")
    def _one_briefing(self) -> Self:
        if self.config.briefing != self.lock.briefing:
            raise ValueError("config and lock have different briefings")
        return self
