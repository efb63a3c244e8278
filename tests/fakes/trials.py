"""Small records for tests of the store and the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from harness.models import Model
from harness.outcome import Cause, Stage
from harness.records import (
    Arm,
    BuildResult,
    Finding,
    Grade,
    MachineFacts,
    ModelSpec,
    Project,
    Reply,
    Request,
    RunConfig,
    RunLock,
    RunRecord,
    Sampling,
    Skill,
    TrialKey,
    TrialRecord,
    Turn,
    Usage,
)
from harness.study.plan import plan
from harness.study.run import Asking, Observer, Runner
from harness.study.store import RunStore
from harness.suite.catalogue import LoadedTask

TASKS = ("l1/rms_norm", "l1/softmax")
SKILL = "5" * 64
ARMS = (Arm(kind="without_skill"), Arm(kind="with_skill", skills=(SKILL,)))
A_SKILL = Skill(
    name="a-skill", description="d", body="b", files=(), digest=SKILL, documents={"SKILL.md": "Be quick."}
)
MACHINE = MachineFacts(platform="Linux x86_64", python="3.11.0", cpu="a CPU", cpu_count=2, torch="2.13.0")


def config(repeats: int = 2, models: tuple[str, ...] = ("fake/one",)) -> RunConfig:
    """Two tasks, two arms."""
    return RunConfig(
        tasks=TASKS,
        skills=("a-skill",),
        models=tuple(ModelSpec(name=name) for name in models),
        arms=ARMS,
        repeats=repeats,
        target="cpu",
        protocol="quick",
        sandbox="local",
        sampling=Sampling(),
        metric="deployed",
        seed=0,
    )


def run_record(resolved: RunConfig | None = None, **lock: Any) -> RunRecord:
    """A run of `config`; changes go to the lock."""
    chosen = resolved or config()
    return RunRecord(
        run_id="r",
        created="2026-01-01T00:00:00+00:00",
        config=chosen,
        lock=RunLock(
            grader_version="0/1",
            tasks=dict.fromkeys(chosen.tasks, "d"),
            families=dict.fromkeys(chosen.tasks, "f"),
            skills={"a-skill": SKILL},
            prompts={},
            machine=MACHINE,
            **lock,
        ),
    )


def reply(text: str = "no files", cost: float | None = None) -> Reply:
    """A reply without a project."""
    return Reply(
        text=text,
        stop="end",
        model_label="fake-1",
        created="2026-01-01T00:00:00+00:00",
        usage=Usage(input_tokens=10, output_tokens=20),
        cost_usd=cost,
    )


def build_result(finding: Finding | None = None, **changes: Any) -> BuildResult:
    """A build; failed where there is a finding."""
    facts = {"backend": "cpu", "key": "k", "cache_hit": False, "wall_s": 0.0, "compiler_s": None} | changes
    return BuildResult(ok=finding is None, finding=finding, **facts)


def grade(cause: Cause = Cause.COMPILE_ERROR, project: str | None = "p" * 64) -> Grade:
    """A failed grade."""
    finding = Finding(cause=cause, message=str(cause))
    build = None
    if project is not None:
        build = build_result(finding, wall_s=0.1, compiler_s=0.1)
    return Grade(
        task=TASKS[0],
        task_digest="d",
        project=project,
        target="cpu",
        protocol="quick",
        verdict=cause.verdict,
        stage=Stage.BUILD if project else Stage.PROJECT,
        finding=finding,
        build=build,
        sandbox="local",
        machine="m",
        wall_s=0.1,
    )


def trial(key: TrialKey, turns: int = 1) -> TrialRecord:
    """A finished trial."""
    return TrialRecord(
        key=key,
        generation_key="g",
        grading_key="k",
        turns=tuple(
            Turn(index=i, prompt_digest=f"d{i}", reply=reply(), project="p" * 64, grade=grade())
            for i in range(turns)
        ),
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:00:01+00:00",
    )


class FakeModel:
    """Answers with what a function returns, and counts."""

    def __init__(self, answer: Callable[[Request], Reply], name: str = "fake/one") -> None:
        self._answer = answer
        self.name = name
        self.asked: list[Request] = []

    def complete(self, request: Request) -> Reply:
        """One reply."""
        self.asked.append(request)
        return self._answer(request)


class FakeGrader:
    """Grades without building."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self._before = before
        self.graded = 0
        self.lost: list[str] = []

    def lost_a_device(self, project: str) -> None:
        """Remembers."""
        self.lost.append(project)

    def grade(
        self,
        project: Project,
        loaded: LoadedTask,
        *,
        log: Path | None = None,
        observer: Callable[[str], None] = lambda stage: None,
    ) -> Grade:
        """A build failure."""
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("a build log")
        self._before()
        self.graded += 1
        observer("build")
        return grade(project=project.digest)

    def no_project(self, finding: Finding, loaded: LoadedTask) -> Grade:
        """No project."""
        return grade(finding.cause, project=None)


def runner(
    store: RunStore, tasks: Mapping[str, LoadedTask], model: Model, grader: Any, *skills: Skill
) -> Runner:
    """Runs the trials of a run of the model fake/one."""
    config = store.run().config
    asking = Asking(store, config, tasks, {s.digest: s for s in skills}, {"fake/one": model}, grader)
    return Runner(store, plan(config), grader, asking.begin)


class Silent:
    """An observer that does nothing."""

    def stage(self, key: TrialKey, stage: str) -> None: ...

    def finished(self, trial: TrialRecord) -> None: ...


class Quiet:
    """A display that shows nothing."""

    def say(self, text: str) -> None: ...

    def waiting(self, what: str) -> AbstractContextManager[None]:
        return nullcontext()

    def trials(self, planned: int, finished: int, models: int) -> AbstractContextManager[Observer]:
        return nullcontext(Silent())


class FailsAt:
    """Called before each grade: raises `error` at the given calls, counted from 1; at all without any."""

    def __init__(self, error: BaseException, *calls: int) -> None:
        self._error, self._calls, self.count = error, calls, 0

    def __call__(self) -> None:
        self.count += 1
        if not self._calls or self.count in self._calls:
            raise self._error
