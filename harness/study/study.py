"""A study: which tasks, arms and models are compared, and the folder that it becomes.

Two equal studies resolve to the same hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness import __version__
from harness.errors import UsageError
from harness.grading.grade import GRADER_VERSION
from harness.records import (
    MachineFacts,
    ModelSpec,
    Protocol,
    RunConfig,
    RunLock,
    RunRecord,
    Sampling,
    Target,
    digest_of,
)
from harness.study.arms import Arms
from harness.study.plan import prompt_digests, run_hash
from harness.study.run import now
from harness.study.store import RunStore
from harness.suite.catalogue import LoadedTask
from harness.text import slug

Metric = Literal["deployed", "correct", "compiles"]


@dataclass(frozen=True)
class Study:
    """What is to be measured, before anything is known of this machine."""

    name: str
    """The skills' names: what the run's folder is named by."""
    tasks: tuple[LoadedTask, ...]
    models: tuple[ModelSpec, ...]
    arms: Arms
    repeats: int
    target: Target
    protocol: Protocol
    sampling: Sampling
    metric: Metric
    turns: int = 1
    alpha: float = 0.05
    leaked: Mapping[str, str] = field(default_factory=dict)
    """Task id to where a skill repeats its reference or expert project."""

    @property
    def trials(self) -> int:
        """How many trials it has."""
        return len(self.tasks) * len(self.models) * len(self.arms.arms) * self.repeats

    @property
    def design(self) -> str:
        """Digest of everything but the level: with a skill's digest it names a look."""
        tasks = sorted(t.task.digest for t in self.tasks)
        models = [spec.model_dump(mode="json") for spec in self.models]
        how = [self.repeats, self.target, self.protocol, self.metric, self.turns]
        kinds = [[arm.kind, arm.delivery, len(arm.skills)] for arm in self.arms.arms]
        # What stands beside a skill makes it another run, whose replies are asked for anew.
        return digest_of([tasks, models, how, kinds, sorted(self.arms.library), self.sampling.model_dump()])

    @property
    def tasks_by_id(self) -> dict[str, LoadedTask]:
        """The tasks."""
        return {t.task.id: t for t in self.tasks}

    def resolve(self, sandbox: str, machine: MachineFacts, image: str | None) -> tuple[RunConfig, RunLock]:
        """Configuration and lock for this machine. `image`: digest of what jobs see instead of it."""
        config = RunConfig(
            tasks=tuple(t.task.id for t in self.tasks),
            skills=self.arms.named,
            models=self.models,
            arms=self.arms.arms,
            repeats=self.repeats,
            target=self.target,
            protocol=self.protocol,
            sandbox=sandbox,
            sampling=self.sampling,
            turns=self.turns,
            metric=self.metric,
            seed=0,
            alpha=self.alpha,
        )
        lock = RunLock(
            grader_version=f"{__version__}/{GRADER_VERSION}",
            tasks={t.task.id: t.task.digest for t in self.tasks},
            families={t.task.id: t.task.family for t in self.tasks},
            skills=self.arms.digests,
            prompts=prompt_digests(config, self.tasks_by_id, self.arms.library),
            machine=machine,
            image=image,
            leaked=dict(self.leaked),
        )
        return config, lock


def make_study(
    arms: Arms,
    tasks: Sequence[LoadedTask],
    models: tuple[ModelSpec, ...],
    *,
    repeats: int,
    target: Target,
    protocol: Protocol,
    sampling: Sampling,
    metric: Metric,
    turns: int = 1,
    alpha: float = 0.05,
    leaked: Mapping[str, str] | None = None,
) -> Study:
    """A study of these arms. Raises UsageError when nothing is left to compare."""
    if not tasks:
        raise UsageError("no tasks are left to run")
    unfit = [t.task.id for t in tasks if target not in t.task.dtypes]
    if unfit:
        raise UsageError(f"not for target {target}: {', '.join(unfit)}")
    return Study(
        name="-".join(arms.named) or "without-skill",
        tasks=tuple(tasks),
        models=models,
        arms=arms,
        repeats=repeats,
        target=target,
        protocol=protocol,
        sampling=sampling,
        metric=metric,
        turns=turns,
        alpha=alpha,
        leaked=leaked or {},
    )


def open_run(study: Study, config: RunConfig, lock: RunLock, root: Path, *, fresh: bool) -> RunStore:
    """The folder of this study's run: an earlier one of the same hash, or a new one."""
    digest = run_hash(config, lock)
    earlier = sorted(p.parent for p in root.glob(f"*-{digest}/run.json"))
    if earlier and not fresh:
        return RunStore(earlier[-1])
    created = now()
    stamp = created.replace("-", "").replace(":", "")
    name = f"{stamp}-{slug(study.name)}-{digest}"
    record = RunRecord(run_id=name, created=created, config=config, lock=lock)
    return RunStore.create(root / name, record)
