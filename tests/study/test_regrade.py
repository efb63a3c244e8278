"""Grading the paid replies of a run again: a new run, no model, the last project."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import SandboxError, UsageError
from harness.outcome import Cause, Verdict
from harness.records import Reply, Request, RunRecord, Target
from harness.study.executor import LocalExecutor
from harness.study.plan import run_hash
from harness.study.regrade import read_source, regrade
from harness.study.run import RunContext
from harness.study.store import RunStore
from harness.suite.catalogue import LoadedTask, select_tasks
from tests.fakes.trials import (
    A_SKILL,
    MACHINE,
    TASKS,
    FailsAt,
    FakeGrader,
    FakeModel,
    Quiet,
    Silent,
    config,
    reply,
    run_record,
    runner,
)

LOADED = select_tasks(list(TASKS))
BY_ID = {t.task.id: t for t in LOADED}
PROJECT = "```toml build.toml\n[general]\n# {}\n```\n"


def record(**changes: Any) -> RunRecord:
    """A run whose tasks are the shipped ones."""
    made = run_record(config().model_copy(update=changes))
    digests = {name: loaded.task.digest for name, loaded in BY_ID.items()}
    return made.model_copy(update={"lock": made.lock.model_copy(update={"tasks": digests})})


def asked_run(folder: Path, answer: Callable[[Request], Reply], grader: Any, **changes: Any) -> RunStore:
    """A run of 8 trials that was asked and graded, as far as the grader goes."""
    store = RunStore.create(folder / "first", record(**changes))
    runner(store, BY_ID, FakeModel(answer), grader, A_SKILL).execute(LocalExecutor(1), Silent())
    return store


def context(folder: Path, grader: Any) -> RunContext:
    """Another machine, in another sandbox."""
    grader.device_bytes = None
    sandbox = SimpleNamespace(name="bubblewrap", facts=dict, stop=lambda: None)
    machine = MACHINE.model_copy(update={"gpu": "NVIDIA H100"})
    setup: Any = SimpleNamespace(
        sandbox=sandbox,
        grader=grader,
        machine=machine,
        stop=lambda: None,
        at_once=1,
        noting=lambda note: nullcontext(),
    )
    return RunContext(setup, {}, folder / "runs", None, 1, Quiet())


def again(
    store: RunStore,
    folder: Path,
    grader: Any = None,
    tasks: list[LoadedTask] = LOADED,
    target: Target = "cpu",
) -> tuple[RunStore, int]:
    """The new run, and the trials that cannot be graded again."""
    source = read_source(store, store.run(), tasks, target)
    return regrade(source, target, context(folder, grader or FakeGrader())), source.missing


def one_project(request: Request) -> Reply:
    """The same project for every trial."""
    return reply(PROJECT.format("a"))


def test_paid_replies_are_graded_into_a_new_run_that_names_the_first(tmp_path: Path) -> None:
    """The first run keeps every byte; the new one has its prompts, replies and keys, and new grades."""
    store = asked_run(tmp_path, one_project, FakeGrader())
    bytes_before = {p: p.read_bytes() for p in store.folder.rglob("*") if p.is_file()}
    made, missing = again(store, tmp_path)
    assert {p: p.read_bytes() for p in store.folder.rglob("*") if p.is_file()} == bytes_before
    old, new = store.run(), made.run()
    assert (made.folder.parent, new.regraded_from, missing) == (tmp_path / "runs", old.run_id, 0)
    assert (new.lock.machine.gpu, new.config.sandbox) == ("NVIDIA H100", "bubblewrap")
    assert new.config.metric == old.config.metric and new.lock.grader_version != old.lock.grader_version
    assert [t.key for t in made.load()] == [t.key for t in store.load()]
    for before, after in zip(store.load(), made.load(), strict=True):
        assert after.generation_key == before.generation_key
        assert [t.reply for t in after.turns] == [t.reply for t in before.turns]
        assert made.request(after.key) == store.request(after.key)
        assert made.paid_reply(after.key, after.generation_key) == before.turns[0].reply
        assert (made.turn_folder(after.key) / "project" / "build.toml").is_file()
    # An `eval` of the same study would not resume in the new run.
    assert not made.folder.name.endswith(run_hash(new.config, new.lock))


def test_the_same_command_resumes_and_fresh_begins_again(tmp_path: Path) -> None:
    """Nothing is graded twice; the next attempt at a trial that was lost is."""
    store = asked_run(tmp_path, one_project, FakeGrader())
    failing = FakeGrader(FailsAt(SandboxError("no"), 1, 2))
    made, _ = again(store, tmp_path, failing)
    assert [t.verdict for t in made.load()].count(Verdict.INFRA) == 1
    grader = FakeGrader()
    assert again(store, tmp_path, grader)[0].folder == made.folder and grader.graded == 1
    assert {t.verdict for t in made.load()} == {Verdict.BUILD_FAILED}
    source = read_source(store, store.run(), LOADED, "cpu")
    other = regrade(source, "cpu", context(tmp_path, FakeGrader()), emulate=False)
    assert other.folder != made.folder
    fresh = replace(context(tmp_path / "other", FakeGrader()), fresh=True)
    assert len(regrade(source, "cpu", fresh).load()) == 8


def test_trials_that_were_lost_are_graded_and_unanswered_ones_are_counted(tmp_path: Path) -> None:
    """A reply that was paid for before the sandbox failed is enough; without one there is nothing."""
    store = asked_run(tmp_path, one_project, FakeGrader(FailsAt(SandboxError("no"))))
    assert {t.verdict for t in store.load()} == {Verdict.INFRA}
    first = store.load()[0].key
    (store.turn_folder(first) / "reply.json").unlink()
    made, missing = again(store, tmp_path)
    assert missing == 1 and first not in {t.key for t in made.load()}
    assert [t.verdict for t in made.load()] == [Verdict.BUILD_FAILED] * 7


def test_an_exchange_of_turns_that_broke_off_is_not_graded(tmp_path: Path) -> None:
    """Its next prompt would need the model."""
    broken = FakeGrader(FailsAt(SandboxError("no")))
    store = asked_run(tmp_path, one_project, broken, turns=3)
    with pytest.raises(UsageError, match="has no reply that could be graded again"):
        again(store, tmp_path)


def test_of_several_turns_the_last_project_is_graded(tmp_path: Path) -> None:
    """Earlier turns keep reply and project and have no grade; a reply that kept it has the same."""
    texts = [PROJECT.format("a"), PROJECT.format("b"), "KEEP"]
    store = asked_run(tmp_path, lambda request: reply(texts[request.turn]), FakeGrader(), turns=3)
    grader = FakeGrader()
    made, _ = again(store, tmp_path, grader)
    assert grader.graded == 8
    for before, after in zip(store.load(), made.load(), strict=True):
        assert [t.project for t in after.turns] == [t.project for t in before.turns]
        first, last, kept = after.turns
        assert first.grade is None and last.grade is not None and kept.grade == last.grade
        assert "# b" in (made.turn_folder(after.key, 1) / "project" / "build.toml").read_text()
        assert made.request(after.key, turn=2) == store.request(after.key, turn=2)


def test_a_reply_without_a_project_is_none_again(tmp_path: Path) -> None:
    """Nothing is built, and the reason stays."""
    store = asked_run(tmp_path, lambda request: reply("I would rather not."), FakeGrader())
    grader = FakeGrader()
    made, _ = again(store, tmp_path, grader)
    causes = [t.grade.finding.cause for t in made.load() if t.grade is not None]
    assert (causes, grader.graded) == ([Cause.NO_FILES] * 8, 0)


def test_only_some_tasks_are_graded_again(tmp_path: Path) -> None:
    """The new run plans nothing else."""
    made, _ = again(asked_run(tmp_path, one_project, FakeGrader()), tmp_path, tasks=LOADED[:1])
    assert made.run().config.tasks == TASKS[:1] and len(made.load()) == 4


def changed(loaded: LoadedTask, **fields: Any) -> LoadedTask:
    """A task of the same name with other fields."""
    return replace(loaded, task=loaded.task.model_copy(update=fields))


@pytest.mark.parametrize(
    ("tasks", "target", "said"),
    [
        ([LOADED[0], changed(LOADED[1], digest="0" * 64)], "cpu",
         r"^l1/softmax: changed since r, .*--tasks-root.*--tasks"),
        (select_tasks(["l1/gemv"]), "cpu", "r has none of these tasks: it has l1/rms_norm, l1/softmax"),
        ([changed(t, dtypes={"cpu": ("float32",)}) for t in LOADED], "cuda",
         "not for target cuda: l1/rms_norm, l1/softmax"),
    ],
)  # fmt: skip
def test_what_cannot_be_graded_again_is_refused_by_name(
    tmp_path: Path, tasks: list[LoadedTask], target: Target, said: str
) -> None:
    """A task that changed since was not what the student was asked."""
    store = asked_run(tmp_path, one_project, FakeGrader())
    with pytest.raises(UsageError, match=said):
        again(store, tmp_path, tasks=tasks, target=target)
    assert not (tmp_path / "runs").exists()
