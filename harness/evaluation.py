"""A study: which tasks, arms and models are compared, and the folder that it becomes.

Owns: resolving what the user asked for into a run record, and finding an earlier run of the same.
Does not own: options (cli/), trials (run.py). Invariant: two equal studies resolve to the same hash.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness import __version__
from harness.catalogue import LoadedSkill, LoadedTask
from harness.errors import UsageError
from harness.grade import GRADER_VERSION
from harness.plan import prompt_digests, run_hash
from harness.records import (
    Arm,
    MachineFacts,
    ModelSpec,
    Protocol,
    RunConfig,
    RunLock,
    RunRecord,
    Sampling,
    Skill,
    Target,
)
from harness.report.records import Summary
from harness.report.summary import detectable
from harness.run import now
from harness.store import RunStore

Metric = Literal["deployed", "correct", "compiles"]


@dataclass(frozen=True)
class Threshold:
    """`--fail-under METRIC=LIFT`."""

    metric: str
    lift: float

    @classmethod
    def parse(cls, text: str) -> Threshold:
        """`correct=0.1` is +10 points; `deployed=1.05` is a ratio. Raises UsageError."""
        found = re.fullmatch(r"(compiles|correct|deployed)=([-+]?\d*\.?\d+)", text)
        if found is None:
            raise UsageError(f"--fail-under {text}: write compiles=0.1, correct=0.1 or deployed=1.05")
        return cls(found[1], float(found[2]))

    def met(self, summary: Summary) -> bool:
        """Whether every comparison with without_skill measured at least this much: fails closed."""
        lifts = [
            row.lift
            for comparison in summary.comparisons
            if comparison.control == "without_skill"
            for row in comparison.rows
            if row.metric == self.metric
        ]
        return bool(lifts) and all(lift is not None and lift >= self.lift for lift in lifts)


@dataclass(frozen=True)
class Study:
    """What is to be measured, before anything is known of this machine."""

    skill: LoadedSkill
    tasks: tuple[LoadedTask, ...]
    models: tuple[ModelSpec, ...]
    arms: tuple[Arm, ...]
    repeats: int
    target: Target
    protocol: Protocol
    sampling: Sampling
    metric: Metric

    @property
    def trials(self) -> int:
        """How many trials it has."""
        return len(self.tasks) * len(self.models) * len(self.arms) * self.repeats

    @property
    def detectable(self) -> str:
        """The minimum detectable effect, stated beforehand."""
        families = len({t.task.family for t in self.tasks})
        return f"minimum detectable effect: {detectable(self.metric, families).statement}"

    @property
    def skills_by_digest(self) -> dict[str, Skill]:
        """The skills of the arms."""
        return {self.skill.skill.digest: self.skill.skill}

    @property
    def tasks_by_id(self) -> dict[str, LoadedTask]:
        """The tasks."""
        return {t.task.id: t for t in self.tasks}

    def resolve(self, sandbox: str, machine: MachineFacts, image: str | None) -> tuple[RunConfig, RunLock]:
        """Configuration and lock for this machine. `image`: digest of what jobs see instead of it."""
        config = RunConfig(
            tasks=tuple(t.task.id for t in self.tasks),
            skills=(self.skill.skill.name,),
            models=self.models,
            arms=self.arms,
            repeats=self.repeats,
            target=self.target,
            protocol=self.protocol,
            sandbox=sandbox,
            sampling=self.sampling,
            metric=self.metric,
            seed=0,
        )
        lock = RunLock(
            grader_version=f"{__version__}/{GRADER_VERSION}",
            tasks={t.task.id: t.task.digest for t in self.tasks},
            families={t.task.id: t.task.family for t in self.tasks},
            skills={self.skill.skill.name: self.skill.skill.digest},
            prompts=prompt_digests(config, self.tasks_by_id, self.skills_by_digest),
            machine=machine,
            image=image,
        )
        return config, lock


def make_study(
    skill: LoadedSkill,
    tasks: Sequence[LoadedTask],
    models: tuple[ModelSpec, ...],
    *,
    repeats: int,
    target: Target,
    protocol: Protocol,
    sampling: Sampling,
    metric: Metric,
) -> Study:
    """A study of one skill. Raises UsageError when nothing is left to compare."""
    if not tasks:
        raise UsageError("no tasks are left to run")
    unfit = [t.task.id for t in tasks if target not in t.task.dtypes]
    if unfit:
        raise UsageError(f"not for target {target}: {', '.join(unfit)}")
    arms = (Arm(kind="without_skill"), Arm(kind="with_skill", skills=(skill.skill.digest,)))
    return Study(skill, tuple(tasks), models, arms, repeats, target, protocol, sampling, metric)


def open_run(study: Study, config: RunConfig, lock: RunLock, root: Path, *, fresh: bool) -> RunStore:
    """The folder of this study's run: an earlier one of the same hash, or a new one."""
    digest = run_hash(config, lock)
    earlier = sorted(p.parent for p in root.glob(f"*-{digest}/run.json"))
    if earlier and not fresh:
        return RunStore(earlier[-1])
    created = now()
    stamp = created.replace("-", "").replace(":", "")
    name = f"{stamp}-{study.skill.skill.name}-{digest}"
    record = RunRecord(run_id=name, created=created, config=config, lock=lock)
    return RunStore.create(root / name, record)
