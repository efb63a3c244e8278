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
from harness.study.pools import LocalExecutor
from harness.study.run import ATTEMPTS, Run
from harness.study.store import RunStore
from harness.suite.catalogue import select_tasks
from tests.fakes.trials import (
    A_SKILL,
    SKILL,
    TASKS,
    FailsAt,
    FakeGrader,
    FakeModel,
    Silent,
    reply,
    run_record,
)

PROJECT = "```toml build.toml\n[general]\n```\n"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries wait; tests do not."""
    monkeypatch.setattr("harness.study.run.time.sleep", lambda seconds: None)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path / "run", run_record())


def make_run(
    store: RunStore, answer: Callable[[Request], Reply], grader: Any = None
) -> tuple[Run, FakeModel]:
    tasks = {t.task.id: t for t in select_tasks(list(TASKS))}
    model = FakeModel(answer)
    run = Run(store, store.run(), tasks, {SKILL: A_SKILL}, {"fake/one": model}, grader or FakeGrader())
    return run, model


def answers(request: Request) -> Reply:
    """A reply with a project."""
    return reply(PROJECT)


def carry_out(run: Run, workers: int = 2, max_wall_s: float | None = None) -> Any:
    return run.execute(LocalExecutor(workers), Silent(), max_wall_s)


def test_every_trial_is_asked_graded_and_kept(store: RunStore) -> None:
    """A run of 8 trials leaves 8 records with project and prompt beside them."""
    run, model = make_run(store, answers)
    outcome = carry_out(run)
    assert (outcome.finished, outcome.owed, outcome.stopped) == (8, 0, None)
    assert len(model.asked) == 8
    for record in store.load():
        assert record.verdict is Verdict.BUILD_FAILED
        folder = store.trial_folder(record.key)
        assert (folder / "project" / "build.toml").is_file() and (folder / "prompt.json").is_file()


def test_our_failures_are_retried_and_recorded(store: RunStore) -> None:
    """A trial that succeeds after a provider failure is scored and remembers the failure."""
    failing = FailsAt(ProviderError("the server is busy"), 1)

    def answer(request: Request) -> Reply:
        failing()
        return reply(PROJECT)

    run, _ = make_run(store, answer)
    carry_out(run, workers=1)
    first, *others = store.load()
    assert first.verdict is Verdict.BUILD_FAILED
    assert [f.message for f in first.failures] == ["the server is busy"]
    assert not any(trial.failures for trial in others)


@pytest.mark.parametrize("error", [SandboxError("no"), HarnessBug("no"), OSError("disk full")])
def test_a_trial_that_always_fails_for_us_is_infra_and_owed_again(store: RunStore, error: Exception) -> None:
    """infra is never scored as the student's; the next run of the same command tries again."""
    run, model = make_run(store, answers, FakeGrader(FailsAt(error)))
    carry_out(run)
    assert {t.verdict for t in store.load()} == {Verdict.INFRA}
    assert all(len(t.failures) == ATTEMPTS for t in store.load())
    assert len(model.asked) == 8  # the reply was paid for once
    run, model = make_run(store, answers)
    assert carry_out(run).finished == 8
    assert model.asked == []
    assert {t.verdict for t in store.load()} == {Verdict.BUILD_FAILED}


def test_a_full_disk_stops_the_run_at_once(store: RunStore) -> None:
    """Nothing is tried again in vain: one infra trial says where and what to do, and the rest stays owed."""
    full = StorageError("/tmp (temporary files) is full: free some space, or set TMPDIR")
    run, _ = make_run(store, answers, FakeGrader(FailsAt(full, 3)))
    with pytest.raises(StorageError, match="set TMPDIR"):
        carry_out(run, workers=1)
    trials = store.load()
    assert [t.verdict for t in trials] == [Verdict.BUILD_FAILED, Verdict.BUILD_FAILED, Verdict.INFRA]
    assert [(f.cause, f.message) for f in trials[-1].failures] == [(Cause.STORAGE, str(full))]
    run, _ = make_run(store, answers)
    assert carry_out(run).finished == 6
    assert {t.verdict for t in store.load()} == {Verdict.BUILD_FAILED}


def test_a_disk_that_was_full_for_a_moment_is_no_bug(store: RunStore) -> None:
    """Every folder can be written to again, so the trial is: the failure is told as what it was."""
    full = OSError(errno.ENOSPC, "No space left on device")
    run, _ = make_run(store, answers, FakeGrader(FailsAt(full, 1)))
    carry_out(run, workers=1)
    assert [f.cause for t in store.load() for f in t.failures] == [Cause.STORAGE]


def test_a_project_that_lost_a_device_is_known_to_the_next_session(store: RunStore) -> None:
    """Interrupting and resuming gives it no further retry."""
    lost = DeviceLost("it was healthy before", "f" * 64)
    run, _ = make_run(store, answers, FakeGrader(FailsAt(lost)))
    carry_out(run)
    assert {f.project for t in store.load() for f in t.failures} == {"f" * 64}
    grader = FakeGrader()
    run, _ = make_run(store, answers, grader)
    carry_out(run)
    assert grader.lost == ["f" * 64]


@pytest.mark.parametrize(
    "error", [PermanentProviderError("401: the key was refused"), UsageError("the prompt has changed")]
)
def test_an_error_that_a_retry_cannot_fix_stops_the_run(store: RunStore, error: Exception) -> None:
    """A wrong key or a recording of another prompt fails once, not twice per trial."""
    asked: list[Request] = []

    def answer(request: Request) -> Reply:
        asked.append(request)
        raise error

    run, _ = make_run(store, answer)
    with pytest.raises(type(error)):
        carry_out(run, workers=1)
    assert (len(asked), store.load()) == (1, [])


def test_a_provider_that_fails_again_and_again_stops_the_run(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many trials lost in a row, and no more are tried; a reply between them starts the count anew."""
    monkeypatch.setattr("harness.study.run.LOST_IN_A_ROW", 3)
    asked: list[Request] = []

    def answer(request: Request) -> Reply:
        asked.append(request)
        if len(asked) == 2 * ATTEMPTS + 1:  # the third trial, after two that were lost
            return reply(PROJECT)
        raise ProviderError("the server is busy")

    run, _ = make_run(store, answer)
    with pytest.raises(PermanentProviderError, match=r"3 trials in a row were lost .*: the server is busy"):
        carry_out(run, workers=1)
    assert len(asked) == 5 * ATTEMPTS + 1
    assert [t.infra for t in store.load()] == [True, True, False, True, True, True]


def test_ctrl_c_keeps_finished_trials_and_the_same_command_finishes(store: RunStore) -> None:
    """An interrupt comes through; what was finished stays, and nothing is asked twice."""
    interrupt = FailsAt(KeyboardInterrupt(), 4)

    def answer(request: Request) -> Reply:
        interrupt()
        return reply(PROJECT)

    run, _ = make_run(store, answer)
    with pytest.raises(KeyboardInterrupt):
        carry_out(run, workers=1)
    assert len(store.load()) == 3
    run, model = make_run(store, answers)
    assert carry_out(run).finished == 5
    assert len(model.asked) == 5


@pytest.mark.parametrize("workers", [1, 3])
def test_a_spent_budget_stops_the_run(store: RunStore, workers: int) -> None:
    """No request after the budget is spent; paid trials are kept, the others owed and not infra."""
    run, model = make_run(store, answers)
    meter = Meter(Limits(max_calls=3))
    run.models = {"fake/one": meter.wrap(model)}
    outcome = carry_out(run, workers=workers)
    assert outcome.stopped == "call budget: 3 of 3 calls used"
    assert (outcome.finished, outcome.owed) == (3, 5)
    assert {t.verdict for t in store.load()} == {Verdict.BUILD_FAILED}
    assert len(store.load()) == len(model.asked) == 3
    run, model = make_run(store, answers)
    assert (carry_out(run).finished, len(model.asked)) == (5, 5)


def test_a_wall_budget_stops_the_run(store: RunStore) -> None:
    """When the time is up the rest stays owed."""
    hold = threading.Event()
    run, _ = make_run(store, answers, FakeGrader(lambda: hold.wait(20) and None))
    run.kill = hold.set
    outcome = carry_out(run, workers=1, max_wall_s=0.2)
    assert outcome.stopped == "time budget"
    assert outcome.owed == 8
