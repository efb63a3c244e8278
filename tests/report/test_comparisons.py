"""What stands in a comparison: costs, transitions, errors, turns, the matrix, leaks, looks and curves."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.outcome import Cause, Verdict
from harness.records import Arm
from harness.report.comparison_schema import Comparison
from harness.report.schema import Summary
from harness.report.summary import summarise
from harness.report.wording import headline, headlines
from tests.report import factories as make
from tests.report import studies
from tests.report.studies import GOOD
from tests.report.test_summary import SPEEDS, WRONG, small_study, without_gpu


def first(summary: Summary) -> Comparison:
    return summary.comparisons[0]


def spent(with_: Any, without: Any, solved: int = 3, families: int = 6) -> Comparison:
    """None correct without; with the skill the first `solved` families are, at SPEEDS."""
    tasks = make.families(families)
    trials = [make.trial(task, make.WITHOUT, *WRONG, answer=without) for task in tasks]
    for index, task in enumerate(tasks):
        cause = (GOOD, "passed") if index < solved else WRONG
        trials.append(make.trial(task, make.WITH, *cause, speedup=[*SPEEDS, 2.0, 2.0][index], answer=with_))
    return first(summarise(make.run(tasks), trials, tasks))


# Spending and the sentence


def test_extra_cost_per_extra_correct_kernel_by_hand() -> None:
    """$0.01 more a trial for half a correct kernel more a trial is $0.02 a kernel; 2,100 tokens are 4,200."""
    comparison = spent(make.reply((3_000, 3_100), 0.03), make.reply((1_000, 3_000), 0.02))
    found = comparison.spending
    assert found is not None
    assert (found.input_tokens, found.output_tokens, found.extra_correct) == (2_000.0, 100.0, 0.5)
    assert found.cost_usd == pytest.approx(0.01)
    assert found.cost_usd_per_extra_correct == pytest.approx(0.02)
    assert found.tokens_per_extra_correct == pytest.approx(4_200.0)
    assert headline(comparison) == (
        "inconclusive: x1.41 deployed (x1.00, x2.00); $0.02 per extra correct kernel (interval not finite: a "
        "gain that is not certain), +$0.01, +2,000 input and +100 output tokens a trial"
    )


def test_a_price_has_the_interval_of_its_families() -> None:
    """Six of eight correct, $0.01 more in each: the ends are prices of subsets of the families."""
    comparison = spent(make.reply(cost=0.03), make.reply(cost=0.02), solved=6, families=8)
    found = comparison.spending
    assert found is not None and found.extra_correct_sure and not found.per_extra_correct_unbounded
    # K = 6 of 255: three subsets have no gain, so the third largest price, of 1 in 3 families, is the end.
    assert found.cost_usd_per_extra_correct_low == pytest.approx(0.01)
    assert found.cost_usd_per_extra_correct_high == pytest.approx(0.03)
    assert "$0.013 per extra correct kernel ($0.01, $0.03)" in headline(comparison)
    same = spent(make.reply(cost=0.03), make.reply(cost=0.02), solved=6)  # one price in every subset
    assert "$0.01 per extra correct kernel (no interval)" in headline(same)


def test_a_price_that_does_not_exist_has_words() -> None:
    """Nothing gained, unknown dollars (tokens step in), unknown tokens: never a division, never 0."""
    nothing = spent(make.reply(cost=0.03), make.reply(cost=0.02), solved=0)
    assert nothing.spending is not None and nothing.spending.cost_usd_per_extra_correct is None
    assert "no additional correct kernel, +$0.01 a trial" in headline(nothing)
    tokens = spent(make.reply((2_000, 3_000), None), make.reply((1_000, 3_000), 0.02))
    assert tokens.spending is not None and tokens.spending.cost_usd is None
    assert "2.0k tokens per extra correct kernel" in headline(tokens) and "$" not in headline(tokens)
    assert headline(spent(make.reply(None, None), make.reply(None, None))).endswith(
        "; tokens and cost unknown"
    )
    unmeasured = first(without_gpu("deployed"))
    assert unmeasured.spending is not None and unmeasured.spending.extra_correct is None


def test_replies_that_only_asked_for_files_are_paid_for() -> None:
    """Steps count in tokens, dollars, replies and so in what a correct kernel costs."""
    summary = summarise(*studies.disclosed())
    arm = summary.arm(make.MODEL, studies.DISCLOSED.id)
    # Per four trials: two steps of 920 and one of 4,950 tokens; answers of 4,000, 7,920, 4,000 and 9,950.
    assert arm.usage.tokens == 2 * (2 * 920 + 4_950 + 4_000 + 7_920 + 4_000 + 9_950)
    assert arm.usage.cost_usd == pytest.approx(2 * (3 * 0.001 + 4 * 0.02))
    assert summary.replies.live == 16 + 6


# Transitions


@pytest.mark.parametrize(
    ("second", "changed", "moved"),
    [((GOOD, "passed"), 0.5, ["wrong_result -> correct: 50% of trials"]), (WRONG, 0.25, [])],
)
def test_transitions_pair_all_repeats_of_a_task(
    second: tuple[Cause, str], changed: float, moved: list[str]
) -> None:
    """One of two correct without; both with: half of the trials move; one of two: chance is no movement."""
    tasks = make.families(1)
    trials = [make.trial("l1/f0t0", make.WITHOUT, *WRONG), make.trial("l1/f0t0", make.WITHOUT, repeat=1)]
    trials += [make.trial("l1/f0t0", make.WITH), make.trial("l1/f0t0", make.WITH, *second, repeat=1)]
    found = first(summarise(make.run(tasks, repeats=2), trials, tasks)).transitions
    assert found is not None and [m.words for m in found.movements] == moved
    assert found.share(Verdict.WRONG_RESULT, Verdict.CORRECT) == changed


def test_the_net_flow_into_correct_is_the_lift() -> None:
    """Cells sum to 1, and the column of `correct` minus its row is the lift in correctness."""
    comparison = first(summarise(*make.study()))
    found = comparison.transitions
    assert found is not None
    assert math.fsum(cell.share for cell in found.cells) == pytest.approx(1.0)
    into = math.fsum(c.share for c in found.cells if c.treatment is Verdict.CORRECT)
    out_of = math.fsum(c.share for c in found.cells if c.control is Verdict.CORRECT)
    assert into - out_of == pytest.approx(comparison.row("correct").lift)


# Error classes


def errors(n_families: int, before: Cause, after: Cause) -> dict[str, Any]:
    tasks = make.families(n_families)
    trials = [make.trial(t, make.WITHOUT, before, "x.cu(1): error: no") for t in tasks]
    trials += [make.trial(t, make.WITH, after, "x.cu(1): error: no") for t in tasks]
    return {one.name: one for one in first(summarise(make.run(tasks), trials, tasks)).error_classes}


def test_classes_are_removed_or_introduced_only_where_significant() -> None:
    """Every family from one error to another: p = 2/256 with 8 families, 3 times that under Holm."""
    found = errors(8, Cause.COMPILE_ERROR, Cause.WRONG_VALUES)
    assert {name: one.change for name, one in found.items()} == {
        "compile_error": "removed",
        "wrong_values": "introduced",
        "syntax": "removed",
    }
    assert [one.p_holm for one in found.values()] == pytest.approx([3 * 2 / 256] * 3)
    assert (found["compile_error"].control.count, found["compile_error"].treatment.count) == (8, 0)
    assert (found["syntax"].group, found["syntax"].difference) == ("first build error", -1.0)
    few = errors(6, Cause.COMPILE_ERROR, Cause.WRONG_VALUES)  # Holm: 3 x 2/64
    assert {one.change for one in few.values()} == {"fewer", "more"}


def test_classes_of_stages_that_were_not_run_everywhere_are_left_out() -> None:
    """Where some trials stopped for want of a GPU, nothing is said about errors after the build."""
    run, trials, tasks = small_study(gpu=None)
    stop = (Cause.NO_CUDA_DEVICE, "no CUDA device on this machine")
    trials[-1] = make.trial("l1/f5t0", make.WITH, *stop)
    trials[0] = make.trial("l1/f0t0", make.WITHOUT, Cause.NO_FILES, "no files")
    assert [one.name for one in first(summarise(run, trials, tasks)).error_classes] == ["no_files"]


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
    cells = [(row.model, c.arm, c.decision, c.lift) for row in matrix.rows for c in row.cells]
    assert cells == [
        (c.model, c.treatment, c.conclusion.decision, c.row("correct").lift) for c in summary.comparisons
    ]
    ps = [(c.row("correct").p_value, c.conclusion.p_adjusted) for c in summary.comparisons]
    assert all(p is not None and q is not None and q >= p for p, q in ps)
    assert min(q for _, q in ps if q is not None) >= 6 * min(p for p, _ in ps if p is not None)
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


# What was read


def test_what_was_read_is_counted_by_trial() -> None:
    """Four of eight trials read SKILL.md, two of them a reference: shares, and what each added."""
    (found,) = summarise(*studies.disclosed()).readings
    read = {one.file: (one.trials.count, one.trials.n, one.tokens) for one in (*found.skills, *found.files)}
    assert read == {
        "cuda-kernel-builder": (4, 8, None),
        "cuda-kernel-builder/SKILL.md": (4, 8, 4_000),
        "cuda-kernel-builder/references/a.md": (2, 8, 2_000),
    }
    assert found.tokens == (4 * 920 + 2 * 4_950) / 8


# Leaks and looks


def test_a_leaked_task_is_shown_and_counts_nowhere() -> None:
    """A reference copied from the skill gives 50x on one task; without it nothing changed."""
    summary = summarise(*studies.leaked())
    comparison, arm = first(summary), summary.arm(make.MODEL, make.WITH.id)
    assert (comparison.row("correct").n_tasks, comparison.row("deployed").lift) == (7, 1.0)
    assert arm.correct is not None and arm.scored == arm.planned == 7
    assert [row.task for row in summary.tasks if row.leaked] == ["l1/f0t0"]
    assert any(row.task == "l1/f0t0" and row.verdict is Verdict.CORRECT for row in summary.trials)
    assert any("l1/f0t0 (cuda-kernel-builder/references/all.md)" in caveat for caveat in comparison.caveats)
    assert summary.detectable.n_families == 7
    assert comparison.transitions is not None and comparison.transitions.movements == ()


def test_leaks_that_leave_too_few_families_leave_no_decision() -> None:
    """Eight families of which three leak are five; at alpha 0.0125 eight are needed."""
    few = first(summarise(*studies.leaked(("l1/f0t0", "l1/f1t0", "l1/f2t0"))))
    assert few.conclusion.reason == "too few families (5 of at least 6)"
    points = (*few.rows, *few.fast_p, *few.error_classes, *few.passes)
    assert all(point.low is None and point.high is None for point in points)
    made = first(summarise(*studies.leaked(alpha=0.0125))).conclusion
    assert made.reason == "too few families (7 of at least 8)"


def eight(alpha: float) -> Comparison:
    tasks = make.families(8)
    trials = [make.trial(task, make.WITHOUT, *WRONG) for task in tasks]
    trials += [make.trial(t, make.WITH, speedup=s) for t, s in zip(tasks, (*SPEEDS, 3.0, 3.0), strict=True)]
    return first(summarise(make.run(tasks, alpha=alpha), trials, tasks))


@pytest.mark.parametrize(("alpha", "look", "expected"), [(0.05, None, "helps"), (0.0125, 2, "helps"),
                                                         (0.00625, 3, "inconclusive")])  # fmt: skip
def test_a_later_look_is_held_to_a_smaller_alpha(alpha: float, look: int | None, expected: str) -> None:
    """p = 2/256 passes 0.0125 and not 0.00625; intervals widen or go with it, and the look is named."""
    comparison = eight(alpha)
    made, row = comparison.conclusion, comparison.row("deployed")
    assert (made.decision, made.alpha, made.look) == (expected, alpha, look)
    assert any(f"look {look}" in caveat for caveat in comparison.caveats) is (look is not None)
    usual = eight(0.05).row("deployed")
    assert usual.high is not None and (row.high is None) is (look == 3)
    assert row.high is None or (row.high > usual.high) is (alpha < 0.05)


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
