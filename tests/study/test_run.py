"""Carrying out a run: retries, budgets, interruption, resume."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import (
    DeviceLost,
    HarnessBug,
    PermanentProviderError,
    ProviderError,
    SandboxError,
    StorageError,
    UsageError,
)
from harness.models.meter import Limits, Meter
from harness.outcome import Cause, Verdict
from harness.records import Reply, Request
from harness.study.executor import LocalExecutor
from harness.study.run import ATTEMPTS, Runner, RunResult
from harness.study.store import RunStore
from harness.suite.catalogue import select_tasks
from tests.fakes.trials import (
    A_SKILL,
    TASKS,
    FailsAt,
    FakeGrader,
    FakeModel,
    Silent,
    reply,
    run_record,
    runner,
)

TASK = {t.task.id: t for t in select_tasks(list(TASKS))}
Answer = Callable[[Request], Reply]


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path / "run", run_record())


def answers(request: Request) -> Reply:
    """A reply with a project."""
    return reply("```toml build.toml\n[general]\n```\n")


def after(failing: FailsAt) -> Answer:
    """Answers, except where `failing` raises."""

    def answer(request: Request) -> Reply:
        failing()
        return answers(request)

    return answer


def make_run(store: RunStore, answer: Answer = answers, grader: Any = None) -> tuple[Runner, FakeModel]:
    model = FakeModel(answer)
    judge = grader or FakeGrader()
    return runner(store, TASK, model, judge, A_SKILL), model


def carry_out(store: RunStore, answer: Answer = answers, grader: Any = None) -> tuple[RunResult, FakeModel]:
    """How the run ended, one trial at a time, and what was asked."""
    run, model = make_run(store, answer, grader)
    return run.execute(LocalExecutor(1), Silent()), model


def test_every_trial_is_asked_graded_and_kept(store: RunStore) -> None:
    """A run of 8 trials leaves 8 records with project and prompt beside them."""
    run, model = make_run(store)
    outcome = run.execute(LocalExecutor(2), Silent())
    assert (outcome.finished, outcome.owed, outcome.stopped) == (8, 0, None)
    assert len(model.asked) == 8
    for record in store.load():
        assert record.verdict is Verdict.BUILD_FAILED
        folder = store.turn_folder(record.key)
        assert (folder / "project" / "build.toml").is_file() and (folder / "prompt.json").is_file()


@pytest.mark.parametrize("error", [SandboxError("no"), HarnessBug("no"), OSError("disk full")])
def test_a_trial_that_always_fails_for_us_is_infra_and_owed_again(store: RunStore, error: Exception) -> None:
    """infra is never scored as the student's; the next run of the same command tries again."""
    _, model = carry_out(store, grader=FakeGrader(FailsAt(error)))
    assert {t.verdict for t in store.load()} == {Verdict.INFRA}
    assert all(len(t.failures) == ATTEMPTS for t in store.load())
    assert len(model.asked) == 8  # the reply was paid for once
    outcome, model = carry_out(store)
    assert (outcome.finished, model.asked) == (8, [])
    assert {t.verdict for t in store.load()} == {Verdict.BUILD_FAILED}


def test_a_full_disk_stops_the_run_at_once(store: RunStore) -> None:
    """Nothing is tried again in vain: one infra trial says where and what to do, and the rest stays owed."""
    full = StorageError("/tmp (temporary files) is full: free some space, or set TMPDIR")
    with pytest.raises(StorageError, match="set TMPDIR"):
        carry_out(store, grader=FakeGrader(FailsAt(full, 3)))
    trials = store.load()
    assert [t.verdict for t in trials] == [Verdict.BUILD_FAILED, Verdict.BUILD_FAILED, Verdict.INFRA]
    assert [(f.cause, f.message) for f in trials[-1].failures] == [(Cause.STORAGE, str(full))]
    assert carry_out(store)[0].finished == 6
    assert {t.verdict for t in store.load()} == {Verdict.BUILD_FAILED}


@pytest.mark.parametrize(
    ("model_fails", "grader_fails", "cause"),
    [
        (ProviderError("the server is busy"), None, Cause.PROVIDER),
        (None, OSError(errno.ENOSPC, "No space left on device"), Cause.STORAGE),
    ],
    ids=["provider", "a disk that was full for a moment"],
)
def test_a_failure_of_ours_is_retried_and_recorded_with_its_cause(
    store: RunStore, model_fails: Exception | None, grader_fails: Exception | None, cause: Cause
) -> None:
    """The trial is scored and remembers the failure; the others have none."""
    grader = FakeGrader(FailsAt(grader_fails, 1)) if grader_fails else None
    carry_out(store, after(FailsAt(model_fails, 1)) if model_fails else answers, grader)
    first, *others = store.load()
    assert first.verdict is Verdict.BUILD_FAILED and [f.cause for f in first.failures] == [cause]
    assert not any(trial.failures for trial in others)


def test_a_project_that_lost_a_device_is_known_to_the_next_session(store: RunStore) -> None:
    """Interrupting and resuming gives it no further retry."""
    lost = DeviceLost("it was healthy before", "f" * 64)
    carry_out(store, grader=FakeGrader(FailsAt(lost)))
    assert {f.project for t in store.load() for f in t.failures} == {"f" * 64}
    grader = FakeGrader()
    carry_out(store, grader=grader)
    assert grader.lost == ["f" * 64]


@pytest.mark.parametrize(
    "error", [PermanentProviderError("401: the key was refused"), UsageError("the prompt has changed")]
)
def test_an_error_that_a_retry_cannot_fix_stops_the_run(store: RunStore, error: Exception) -> None:
    """A wrong key or a recording of another prompt fails once, not twice per trial."""
    failing = FailsAt(error)
    with pytest.raises(type(error)):
        carry_out(store, after(failing))
    assert (failing.count, store.load()) == (1, [])


def test_a_provider_that_fails_again_and_again_stops_the_run(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many trials lost in a row, and no more are tried; a reply between them starts the count anew."""
    monkeypatch.setattr("harness.study.run.LOST_IN_A_ROW", 3)
    asked: list[Request] = []

    def answer(request: Request) -> Reply:
        asked.append(request)
        if len(asked) == 2 * ATTEMPTS + 1:  # the third trial, after two that were lost
            return answers(request)
        raise ProviderError("the server is busy")

    with pytest.raises(PermanentProviderError, match=r"3 trials in a row were lost .*: the server is busy"):
        carry_out(store, answer)
    assert len(asked) == 5 * ATTEMPTS + 1
    assert [t.infra for t in store.load()] == [True, True, False, True, True, True]


def test_ctrl_c_keeps_finished_trials_and_the_same_command_finishes(store: RunStore) -> None:
    """An interrupt comes through; what was finished stays, and nothing is asked twice."""
    with pytest.raises(KeyboardInterrupt):
        carry_out(store, after(FailsAt(KeyboardInterrupt(), 4)))
    assert len(store.load()) == 3
    outcome, model = carry_out(store)
    assert outcome.finished == len(model.asked) == 5


@pytest.mark.parametrize("workers", [1, 3])
def test_a_spent_budget_stops_the_run(store: RunStore, workers: int) -> None:
    """No request after the budget is spent; paid trials are kept, the others owed and not infra."""
    model = FakeModel(answers)
    metered = Meter(Limits(max_calls=3)).wrap(model)
    run = runner(store, TASK, metered, FakeGrader(), A_SKILL)
    outcome = run.execute(LocalExecutor(workers), Silent())
    assert outcome.stopped == "call budget: 3 of 3 calls used"
    assert (outcome.finished, outcome.owed) == (3, 5)
    assert {t.verdict for t in store.load()} == {Verdict.BUILD_FAILED}
    assert len(store.load()) == len(model.asked) == 3
    outcome, model = carry_out(store)
    assert (outcome.finished, len(model.asked)) == (5, 5)


def test_a_wall_budget_stops_the_run(store: RunStore) -> None:
    """When the time is up the rest stays owed."""
    hold = threading.Event()
    run, _ = make_run(store, grader=FakeGrader(lambda: hold.wait(20) and None))
    run.kill = hold.set
    outcome = run.execute(LocalExecutor(1), Silent(), 0.2)
    assert (outcome.stopped, outcome.owed) == ("time budget", 8)
