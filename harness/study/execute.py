"""Executes a study on this machine: opens or resumes its run folder and runs the owed trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.builder.build import Built, build
from harness.builder.toolchain import Toolchain
from harness.models import Model
from harness.records import BuildResult, MachineFacts, Project, Target
from harness.skills.lineage import Look, LookLog, lineage_of, look_at, looks_file
from harness.skills.spec import LoadedSkill
from harness.study.plan import plan
from harness.study.pools import LocalExecutor
from harness.study.run import Observer, Outcome, Run, now
from harness.study.store import RunStore, sole_writer
from harness.study.study import Study, open_run
from harness.suite.sizes import refuse_too_large
from sandboxes.job import IMAGES_FACT
from sandboxes.pool import SandboxPool

if TYPE_CHECKING:  # torch
    from harness.grading.grade import Grader


@dataclass(frozen=True)
class BuildSetup:
    """A sandbox and a toolchain: builds projects."""

    sandbox: SandboxPool
    toolchain: Toolchain
    cache: Path

    def build(self, project: Project, target: Target, *, wall_s: float = 600.0) -> Built:
        """Build a project, or reuse its build in the cache. Thread-safe."""
        return build(
            project,
            target,
            sandbox=self.sandbox,
            toolchain=self.toolchain,
            cache=self.cache / "builds",
            wall_s=wall_s,
        )

    def result(self, project: Project, target: Target) -> BuildResult:
        return self.build(project, target).result

    def close(self) -> None:
        self.sandbox.stop()


@dataclass(frozen=True)
class GradingSetup(BuildSetup):
    """Builds projects, and grades them on this machine."""

    grader: Grader
    machine: MachineFacts

    def close(self) -> None:
        self.grader.close()
        self.sandbox.stop()


class Display(Protocol):
    """Shows what happens while it happens."""

    def say(self, text: str) -> None:
        """Print one line."""

    def waiting(self, what: str) -> AbstractContextManager[None]:
        """Show that something long is under way."""

    def trials(self, planned: int, finished: int, models: int) -> AbstractContextManager[Observer]:
        """Show trials as they finish; `finished` of `planned` are on disk already."""


@dataclass(frozen=True)
class RunContext:
    """With what, and within which limits, studies are executed."""

    setup: GradingSetup
    models: Mapping[str, Model]
    runs: Path
    max_wall_s: float | None
    """Time limit of a run; None is no limit. The models' meter limits tokens, dollars and calls."""
    connections: int
    display: Display
    fresh: bool = False
    """Begin a new run even if the same study has one."""


def open_study(study: Study, context: RunContext) -> RunStore:
    """The study's run folder, found or created. Raises UsageError if a workload does not fit in memory."""
    setup = context.setup
    refuse_too_large(study.tasks, study.target, setup.grader.device_bytes)
    image = setup.sandbox.facts().get(IMAGES_FACT)
    config, lock = study.resolve(setup.sandbox.name, setup.machine, image)
    return open_run(study, config, lock, context.runs, fresh=context.fresh)


def execute(study: Study, store: RunStore, context: RunContext) -> Outcome:
    setup, say = context.setup, context.display.say
    with sole_writer(store.folder):
        record = store.run()
        runner = Run(
            store,
            record,
            study.tasks_by_id,
            study.arms.library,
            context.models,
            setup.grader,
            kill=setup.sandbox.stop,
        )
        finished = sum(not trial.infra for trial in store.load())  # lost trials are run again
        planned = len(plan(record.config))
        say(f"run {store.folder}: {planned} trials, {finished} finished before")
        with context.display.trials(planned, finished, len(context.models)) as observer:
            executor = LocalExecutor(context.connections)
            outcome = runner.execute(executor, observer, context.max_wall_s)
    if outcome.stopped is not None:
        say(f"stopped: {outcome.stopped}; {outcome.owed} trials are owed")
    return outcome


def with_looks(
    study: Study, skills: Sequence[LoadedSkill], say: Callable[[str], None], *, fresh: bool = False
) -> tuple[Study, tuple[Look, ...]]:
    """The study with alpha reduced by earlier looks at the same tasks, and the looks that it takes itself.

    Only skills that were refined here have looks. With `fresh` an existing run of the same study is another
    look. Nothing is written; see `record_looks`.
    """
    log = LookLog(looks_file())
    looks = [
        look_at(log, lineage, loaded.skill.digest, study.design, now(), fresh=fresh)
        for loaded in skills
        if (lineage := lineage_of(loaded.directory)) is not None
    ]
    for look in looks:
        say(
            f"look {look.number} of lineage {look.lineage} at tasks that it was not refined on: decided at "
            f"alpha {look.alpha:g}"
        )
    return replace(study, alpha=min([study.alpha, *(look.alpha for look in looks)])), tuple(looks)


def record_looks(looks: Sequence[Look]) -> None:
    """Write looks to the log, before the first trial."""
    log = LookLog(looks_file())
    for look in looks:
        log.add(look)
