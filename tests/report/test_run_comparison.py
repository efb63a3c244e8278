"""Two runs side by side: pairing, what differs, and what changed by more than noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.outcome import Cause
from harness.records import Arm, EmulatedCheck, ModelSpec, RunRecord, TrialRecord
from harness.report.headline import headline
from harness.report.run_comparison import PairedRow, RunComparison, compare_runs
from harness.study.store import RunStore
from tests.report import factories as make

EIGHT = make.families(8)
NEW_SKILL = Arm(kind="with_skill", skills=("7" * 64,))
Trials = Callable[[str, Arm], TrialRecord]


def store_of(folder: Path, run: RunRecord, trials: Sequence[TrialRecord]) -> RunStore:
    store = RunStore.create(folder, run)
    for trial in trials:
        store.append(trial)
    return store


def right(task: str, arm: Arm) -> TrialRecord:
    return make.trial(task, arm, speedup=2.0)


def wrong(task: str, arm: Arm) -> TrialRecord:
    return make.trial(task, arm, Cause.WRONG_VALUES, "off")


def with_skill_only(task: str, arm: Arm) -> TrialRecord:
    return (right if arm.kind == "with_skill" else wrong)(task, arm)


def compared(tmp_path: Path, a: Trials, b: Trials, run_a: RunRecord, run_b: RunRecord) -> RunComparison:
    """Both runs with one trial per task and arm."""
    stores = [
        store_of(
            tmp_path / name, run, [answer(task, arm) for task in run.config.tasks for arm in run.config.arms]
        )
        for name, run, answer in (("a", run_a, a), ("b", run_b, b))
    ]
    return compare_runs(*stores)


def row(found: RunComparison, what: str, label: str, metric: str) -> PairedRow:
    """The only row of a metric in a cell."""
    cells = [cell for cell in found.cells if (cell.what, cell.label_b) == (what, label)]
    (one,) = [row for cell in cells for row in cell.rows if row.metric == metric]
    return one


def test_a_change_beyond_noise_is_told_from_none(tmp_path: Path) -> None:
    """The skill's arm becomes right in all 8 families: better, and so is its lift; the rest is unchanged."""
    run = make.run(EIGHT, metric="correct")
    found = compared(tmp_path, wrong, with_skill_only, run, run)
    assert found.changes == () and found.unpaired == ()
    level = row(found, "level", "cuda-kernel-builder", "correct")
    assert (level.control, level.treatment, level.lift, level.outcome) == (0.0, 1.0, 1.0, "better")
    # 2 / 2^8 by the sign-flip test, times the 3 rows of the primary metric by Holm.
    assert level.p_value == pytest.approx(2 / 256) and level.p_holm == pytest.approx(6 / 256)
    assert level.low is not None and level.low > 0.0
    lift = row(found, "lift", "cuda-kernel-builder", "correct")
    assert (lift.control, lift.treatment, lift.lift, lift.outcome) == (0.0, 1.0, 1.0, "better")
    same = row(found, "level", "without skill", "correct")
    assert (same.lift, same.low, same.p_holm, same.outcome) == (0.0, None, 1.0, "within noise")
    compiles = row(found, "level", "cuda-kernel-builder", "compiles")
    assert (compiles.lift, compiles.outcome) == (0.0, "within noise")
    swapped = compare_runs(RunStore(tmp_path / "b"), RunStore(tmp_path / "a"))
    worse = row(swapped, "level", "cuda-kernel-builder", "correct")
    assert (worse.lift, worse.outcome, worse.p_value) == (-1.0, "worse", level.p_value)


def test_speedups_are_compared_as_ratios(tmp_path: Path) -> None:
    """2x becomes 3x in every family: x1.5, by the same logs as the deployed score."""
    run = make.run(EIGHT)
    found = compared(tmp_path, right, lambda task, arm: make.trial(task, arm, speedup=3.0), run, run)
    deployed = row(found, "level", "without skill", "deployed")
    assert deployed.control == pytest.approx(2.0) and deployed.lift == pytest.approx(1.5)
    assert deployed.outcome == "better"
    assert row(found, "lift", "cuda-kernel-builder", "deployed").lift == pytest.approx(1.0)


def test_too_few_families_change_nothing(tmp_path: Path) -> None:
    """Five families that all differ are still noise."""
    run = make.run(make.families(5), metric="correct")
    level = row(compared(tmp_path, wrong, right, run, run), "level", "without skill", "correct")
    assert (level.lift, level.low, level.outcome) == (1.0, None, "within noise")


def _other_machine(run: RunRecord) -> RunRecord:
    lock = run.lock.model_copy(update={"machine": make.machine(None), "grader_version": "0.1.0/8"})
    return run.model_copy(update={"lock": lock})


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (make.run(EIGHT, sandbox="landlock", turns=3),
         {("sandbox", "docker", "landlock"), ("turns", "1", "3")}),
        (make.run(EIGHT, models=(ModelSpec(name=make.OTHER),)), {("models", make.MODEL, make.OTHER)}),
        (make.run(EIGHT, arms=(make.WITHOUT, NEW_SKILL), lock_skills={"cuda-kernel-builder": "7" * 64}),
         {("skill cuda-kernel-builder", "5" * 8, "7" * 8)}),
        (_other_machine(make.run(EIGHT)),
         {("grader", "0.1.0", "0.1.0/8"), ("machine gpu", "NVIDIA H200", "none"),
          ("machine driver", "580.65", "none")}),
        (make.run(EIGHT | {"l2/more": "more"}), {("tasks of one run", "none", "l2/more")}),
    ],
    ids=["settings", "model", "skill", "grader and machine", "tasks"],
)  # fmt: skip
def test_what_differs_is_named_and_still_paired(
    tmp_path: Path, other: RunRecord, told: set[tuple[str, str, str]]
) -> None:
    """A single other model or skill stands for the one before; tasks of one run are no pairs."""

    def answers(task: str, arm: Arm) -> TrialRecord:
        return make.trial(task, arm, model=other.config.models[0].name)

    found = compared(tmp_path, right, answers, make.run(EIGHT), other)
    assert {(c.what, c.a, c.b) for c in found.changes} == told and found.unpaired == ()
    assert [(cell.what, cell.trials_a, cell.trials_b) for cell in found.cells] == [
        ("level", 8, 8), ("level", 8, 8), ("lift", 8, 8),
    ]  # fmt: skip
    assert {row.n_tasks for cell in found.cells for row in cell.rows} == {8}


def test_changed_and_leaked_tasks_are_left_out(tmp_path: Path) -> None:
    """Neither shows anything of model or skill; prompts that changed are counted."""
    run = make.run(EIGHT)
    lock = run.lock.model_copy(update={"prompts": {"l1/f0t0/x": "1", "l1/f1t0/x": "1"}})
    changed = {
        "tasks": lock.tasks | {"l1/f0t0": "e" * 64},
        "leaked": {"l1/f1t0": "SKILL.md"},
        "prompts": {"l1/f0t0/x": "2", "l1/f1t0/x": "1"},
    }
    runs = [run.model_copy(update={"lock": one}) for one in (lock, lock.model_copy(update=changed))]
    found = compared(tmp_path, right, right, runs[0], runs[1])
    assert found.left_out == {"l1/f0t0": "the task changed", "l1/f1t0": "a skill repeats its reference"}
    assert row(found, "level", "without skill", "correct").n_tasks == 6
    assert [(c.what, c.a, c.b) for c in found.changes] == [
        ("tasks", "8 in both", "1 of them changed"), ("prompts", "2 in both", "1 of them changed"),
    ]  # fmt: skip


def test_arms_of_one_run_alone_are_named(tmp_path: Path) -> None:
    """A placebo that A lacks is compared with nothing."""
    run = make.run(EIGHT, arms=(make.WITHOUT, make.WITH, make.PLACEBO))
    assert compared(tmp_path, right, right, make.run(EIGHT), run).unpaired == (
        f"{make.PLACEBO.id} (only in B)",
    )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (make.run({"l2/other": "x"}), "no task can be compared: they have none in common"),
        (make.run(EIGHT, arms=(make.PLACEBO, make.OLD)), "no arm of one model in common"),
    ],
)
def test_runs_without_anything_in_common_are_refused(tmp_path: Path, other: RunRecord, said: str) -> None:
    """There is nothing to subtract."""
    with pytest.raises(UsageError, match=said):
        compared(tmp_path, right, right, make.run(EIGHT), other)


def test_replies_graded_on_a_gpu_later_show_what_became_of_each(tmp_path: Path) -> None:
    """A had no GPU and emulated: its verdicts are counted with B's, and what A lacks is named, not tested."""
    no_gpu: dict[str, Any] = {"gpu": None, "metric": "compiles"}
    seen = EmulatedCheck(outcome="timed_out", message="too slow", wall_s=1.0)

    def unmeasured(task: str, arm: Arm) -> TrialRecord:
        return make.trial(task, arm, Cause.NO_CUDA_DEVICE, "no CUDA device", emulated=seen)

    on_gpu = make.run(EIGHT, metric="compiles").model_copy(update={"regraded_from": "x"})
    found = compared(tmp_path, unmeasured, with_skill_only, make.run(EIGHT, **no_gpu), on_gpu)
    assert found.same_replies == 16 and found.b.regraded_from == "x"
    before = "not_measured (emulated: timed_out)"
    assert [(v.a, v.b, len(v.trials)) for v in found.verdicts] == [
        (before, "correct", 8), (before, "wrong_result", 8),
    ]  # fmt: skip
    correct = row(found, "level", "without skill", "correct")
    assert (correct.not_measured, correct.lift, correct.outcome) == (
        "in A: no CUDA device", None, "not measured",
    )  # fmt: skip
    assert row(found, "level", "without skill", "compiles").lift == 0.0


def test_other_replies_are_not_the_same_trial(tmp_path: Path) -> None:
    """Only a reply that was paid for once can change its verdict."""
    run = make.run(EIGHT)

    def asked_again(task: str, arm: Arm) -> TrialRecord:
        return right(task, arm).model_copy(update={"generation_key": "h" * 64})

    found = compared(tmp_path, wrong, asked_again, run, run)
    assert (found.same_replies, found.verdicts) == (0, ())


def test_a_headline_is_kept_until_another_trial_finishes(tmp_path: Path) -> None:
    """A list of runs reads no trial twice."""
    run = make.run(EIGHT, metric="correct")
    store = store_of(tmp_path / "a", run, [with_skill_only(t, arm) for t in EIGHT for arm in run.config.arms])
    first = headline(store)
    assert [(r.decision, r.lift, r.metric) for r in first.rows] == [("helps", 1.0, "correct")]
    assert (first.planned, first.scored, first.lost) == (16, 16, 0)
    trials = store.folder / "trials.jsonl"
    text = trials.read_bytes()
    trials.write_bytes(b" " * len(text))
    assert headline(store) == first
    trials.write_bytes(text)
    store.append(make.trial("l1/f0t0", make.WITH, Cause.SANDBOX, "lost"))
    assert (headline(store).scored, headline(store).lost) == (15, 1)
    (store.folder / "headline.json").write_text("{")
    assert headline(store).scored == 15
