"""Studies beyond one skill and one turn: turns, the matrix, what was read, leaks, looks, levels of arms."""

from __future__ import annotations

import math

import pytest

from harness.outcome import Cause, Verdict
from harness.records import Arm, RunRecord, TrialRecord
from harness.report.comparisons import look_of
from harness.report.summary import summarise
from harness.report.wording import headlines
from tests.report import factories as make
from tests.report import studies
from tests.report.studies import GOOD
from tests.report.test_comparing import first
from tests.report.test_summary import SPEEDS, WRONG, small_study

# Turns


def test_turns_carry_ended_trials_forward() -> None:
    """Correct at once without repair, wrong then right with: lift is -1, then 0, and cost adds up."""
    tasks = make.families(6)
    trials = [studies.trial_of_turns(task, make.WITHOUT, [(GOOD, 2.0)], cost=0.01) for task in tasks]
    wrong = (Cause.COMPILE_ERROR, 1.0)
    trials += [studies.trial_of_turns(t, make.WITH, [wrong, wrong, (GOOD, 4.0)], cost=0.02) for t in tasks]
    points = first(summarise(make.run(tasks, turns=3), trials, tasks)).turns
    assert [p.turn for p in points] == [1, 2, 3]
    assert [p.control for p in points] == pytest.approx([2.0] * 3)
    assert [p.treatment for p in points] == pytest.approx([1.0, 1.0, 4.0])
    assert [p.lift for p in points] == pytest.approx([0.5, 0.5, 2.0])
    assert [p.control_cost_usd for p in points] == pytest.approx([0.01] * 3)
    assert [p.treatment_cost_usd for p in points] == pytest.approx([0.02, 0.04, 0.06])
    assert points[2].lift_per_usd == pytest.approx(100 / 0.05)
    assert [p.treatment_tokens for p in points] == [4_000, 8_000, 12_000]


def test_the_last_turn_decides_and_a_kept_kernel_counts_as_it_was() -> None:
    """The decision's row is the last turn's point; keeping a kernel costs a reply and changes no grade."""
    tasks = make.families(6)
    trials = [studies.trial_of_turns(t, make.WITHOUT, [(Cause.COMPILE_ERROR, 1.0)] * 2) for t in tasks]
    for task, speed in zip(tasks, SPEEDS, strict=True):
        trials.append(studies.trial_of_turns(task, make.WITH, [(GOOD, speed)] * 2, kept=(1,)))
    comparison = first(summarise(make.run(tasks, turns=2), trials, tasks))
    assert first(summarise(*small_study())).turns == ()  # a run of single replies has no table of turns
    row, points = comparison.row("deployed"), comparison.turns
    assert comparison.conclusion.decision == "helps"
    assert (points[1].lift, points[1].low, points[1].high) == (row.lift, row.low, row.high)
    assert points[0].lift == points[1].lift
    assert points[1].treatment_cost_usd == pytest.approx(0.04)


# Several skills and models


def test_every_combination_stands_in_the_matrix_and_under_holm() -> None:
    """Two models and three skill arms are six decisions, adjusted together, each in its cell."""
    summary = summarise(*studies.combinations())
    (matrix,) = summary.matrices
    assert summarise(*make.study()).matrices == ()  # one decision needs no matrix
    assert matrix.columns == ("cuda-kernel-builder", "fast-memory", "cuda-kernel-builder + fast-memory")
    assert [row.model for row in matrix.rows] == [make.MODEL, make.OTHER]
    cells = [(row.model, cell) for row in matrix.rows for cell in row.cells]
    assert [(model, cell.arm) for model, cell in cells] == [
        (c.model, c.treatment) for c in summary.comparisons
    ]
    for (_, cell), comparison in zip(cells, summary.comparisons, strict=True):
        assert (cell.decision, cell.lift) == (comparison.conclusion.decision, comparison.row("correct").lift)
    raw = [c.row("correct").p_value for c in summary.comparisons]
    adjusted = [c.conclusion.p_adjusted for c in summary.comparisons]
    assert all(p is not None and q is not None and q >= p for p, q in zip(raw, adjusted, strict=True))
    assert min(q for q in adjusted if q is not None) >= 6 * min(p for p in raw if p is not None)
    assert len(headlines(summary)) == 6
    assert headlines(summary)[0].startswith("claude-haiku-4-5 x cuda-kernel-builder: helps: +")


def test_every_combination_is_held_against_its_own_placebo() -> None:
    """As many placebos as skill arms go by order, and are named after what they stand for."""
    tasks = make.families(6)
    other = Arm(kind="placebo", skills=("8" * 64,))
    arms = (make.WITHOUT, make.WITH, studies.BOTH, make.PLACEBO, other)
    trials = [make.trial(task, arm) for task in tasks for arm in arms]
    summary = summarise(make.run(tasks, arms=arms, lock_skills=studies.SKILLS), trials, tasks)
    assert [c.placebo for c in summary.comparisons] == [make.PLACEBO.id, other.id]
    assert [a.label for a in summary.arms if a.kind == "placebo"] == [
        "placebo of cuda-kernel-builder",
        "placebo of cuda-kernel-builder + fast-memory",
    ]


def test_controls_of_the_same_delivery_are_compared() -> None:
    """With both ways of asking in one run, a disclosed skill is not held against the other way's control."""
    tasks = make.families(6)
    arms: tuple[Arm, ...] = (make.WITHOUT, studies.WITHOUT_DISCLOSED, make.WITH, studies.DISCLOSED)
    trials = [make.trial(task, arm) for task in tasks for arm in arms]
    made = summarise(make.run(tasks, arms=arms), trials, tasks).comparisons
    assert [(c.control, c.treatment) for c in made] == [
        (make.WITHOUT.id, make.WITH.id),
        (studies.WITHOUT_DISCLOSED.id, studies.DISCLOSED.id),
    ]


# What was read


def test_what_was_read_is_counted_by_trial() -> None:
    """Four of eight trials read SKILL.md, two of them a reference: shares, and what each added."""
    (found,) = summarise(*studies.disclosed()).readings
    assert [(one.file, one.trials.count, one.trials.n) for one in found.skills] == [
        ("cuda-kernel-builder", 4, 8)
    ]
    assert [(one.file.partition("/")[2], one.trials.count, one.tokens) for one in found.files] == [
        ("SKILL.md", 4, 4_000),
        ("references/a.md", 2, 2_000),
    ]
    assert found.tokens == (4 * 920 + 2 * 4_950) / 8


def test_unknown_tokens_of_reading_stay_unknown() -> None:
    """A provider that counts nothing leaves None, and the file is still counted."""
    run, trials, tasks = studies.disclosed()
    blind = studies.step(("cuda-kernel-builder/SKILL.md",), cost=None)
    blind = blind.model_copy(update={"reply": make.reply(None, None, stop="tool")})
    trials[1] = studies.trial_of_turns("l1/f0t0", studies.DISCLOSED, [(GOOD, 2.0)], steps=(blind,))
    (found,) = summarise(run, trials, tasks).readings
    assert found.tokens is None
    assert found.files[0].trials.count == 5


# Leaks and looks


def test_a_leaked_task_is_shown_and_counts_nowhere() -> None:
    """A reference copied from the skill gives 50x on one task; without it nothing changed."""
    summary = summarise(*studies.leaked())
    comparison = first(summary)
    assert {row.n_tasks for row in comparison.rows if row.metric == "correct"} == {7}
    assert comparison.row("deployed").lift == 1.0
    assert summary.arm(make.MODEL, make.WITH.id).correct is not None
    assert summary.arm(make.MODEL, make.WITH.id).scored == summary.arm(make.MODEL, make.WITH.id).planned == 7
    assert [row.task for row in summary.tasks if row.leaked] == ["l1/f0t0"]
    assert any(row.task == "l1/f0t0" and row.verdict is Verdict.CORRECT for row in summary.trials)
    assert any("l1/f0t0 (cuda-kernel-builder/references/all.md)" in caveat for caveat in comparison.caveats)
    assert summary.detectable.n_families == 7
    assert comparison.transitions is not None and comparison.transitions.movements == ()


def test_leaks_that_leave_too_few_families_leave_no_decision() -> None:
    """Eight families of which three leak are five; at alpha 0.0125 eight are needed."""
    made = first(summarise(*studies.leaked(("l1/f0t0", "l1/f1t0", "l1/f2t0")))).conclusion
    assert made.reason == "too few families (5 of at least 6)"
    made = first(summarise(*studies.leaked(alpha=0.0125))).conclusion
    assert made.reason == "too few families (7 of at least 8)"


def eight(alpha: float) -> tuple[RunRecord, list[TrialRecord], dict[str, str]]:
    tasks = make.families(8)
    trials = [make.trial(task, make.WITHOUT, *WRONG) for task in tasks]
    trials += [make.trial(t, make.WITH, speedup=s) for t, s in zip(tasks, (*SPEEDS, 3.0, 3.0), strict=True)]
    return make.run(tasks, alpha=alpha), trials, tasks


@pytest.mark.parametrize(("alpha", "look", "expected"), [(0.05, None, "helps"), (0.0125, 2, "helps"),
                                                         (0.00625, 3, "inconclusive")])  # fmt: skip
def test_a_later_look_is_held_to_a_smaller_alpha(alpha: float, look: int | None, expected: str) -> None:
    """p = 2/256 passes 0.0125 and not 0.00625; intervals widen or go with it, and the look is named."""
    comparison = first(summarise(*eight(alpha)))
    made, row = comparison.conclusion, comparison.row("deployed")
    assert (made.decision, made.alpha, made.look) == (expected, alpha, look)
    assert any(f"look {look}" in caveat for caveat in comparison.caveats) is (look is not None)
    usual = first(summarise(*eight(0.05))).row("deployed")
    assert usual.high is not None and (row.high is None) is (look == 3)
    assert row.high is None or (row.high > usual.high) is (alpha < 0.05)


@pytest.mark.parametrize(("alpha", "look"), [(0.05, None), (0.025, 1), (0.05 / 2**7, 7), (0.03, None)])
def test_looks_are_powers_of_two(alpha: float, look: int | None) -> None:
    """0.05 / 2^k is the k-th look; anything else is no look."""
    assert look_of(alpha) == look


# Levels of arms


def test_pass_at_every_k_by_hand() -> None:
    """2 of 3 correct: pass@1, 2, 3 are 2/3, 1, 1 and pass^1, 2, 3 are 2/3, 1/3, 0, in arm and comparison."""
    tasks = make.families(1)
    trials = [make.trial("l1/f0t0", make.WITHOUT, *WRONG, repeat=k) for k in range(3)]
    trials += [make.trial("l1/f0t0", make.WITH, repeat=k) for k in range(2)]
    trials.append(make.trial("l1/f0t0", make.WITH, *WRONG, repeat=2))
    summary = summarise(make.run(tasks, repeats=3), trials, tasks)
    passes = summary.arm(make.MODEL, make.WITH.id).passes
    assert [p.at for p in passes] == pytest.approx([2 / 3, 1.0, 1.0])
    assert [p.hat for p in passes] == pytest.approx([2 / 3, 1 / 3, 0.0])
    lifts = {(p.estimator, p.k): p.lift for p in first(summary).passes}
    assert lifts["pass@k", 1] == pytest.approx(2 / 3)
    assert lifts["pass^k", 2] == pytest.approx(1 / 3)


def test_one_arm_has_its_own_curve_with_a_band() -> None:
    """fast_p by family: five of six families above 1.0x, within 0 and 100 %."""
    tasks = make.families(6)
    *good, bad = tasks
    trials = [make.trial(task, make.WITHOUT, speedup=2.0) for task in good]
    trials.append(make.trial(bad, make.WITHOUT, *WRONG))
    (arm,) = summarise(make.run(tasks, arms=(make.WITHOUT,)), trials, tasks).arms
    level = next(one for one in arm.fast_levels if one.threshold == 1.0)
    assert level.share == pytest.approx(5 / 6)
    assert (level.low, level.high) == (0.0, 1.0)


def test_the_spread_that_was_seen_is_labelled_after_the_fact() -> None:
    """Logs (1,1,1,1,1,2) ln 2 have the sd ln 2 / sqrt 6; the planned statement stays beside it."""
    summary = summarise(*small_study())
    seen = first(summary).observed
    assert seen is not None
    assert seen.sd == pytest.approx(math.log(2) / math.sqrt(6))
    assert seen.statement.startswith("After the fact: with 6 families (observed sd 0.28 of the log ratio)")
    assert "assumed sd 0.5" in summary.detectable.statement
