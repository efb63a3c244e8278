"""What stands beside a decision: the cost, transitions, classes of errors."""

from __future__ import annotations

import math
from typing import Any

import pytest

from harness.outcome import Cause, Verdict
from harness.report.effects import Comparison
from harness.report.records import Summary
from harness.report.summary import summarise
from harness.report.wording import headline
from tests.report import factories as make
from tests.report import studies
from tests.report.test_summary import SPEEDS, WRONG, small_study, without_gpu

GOOD = studies.GOOD


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
    unsure = spent(make.reply(cost=0.03), make.reply(cost=0.02), solved=5).spending
    assert unsure is not None and unsure.per_extra_correct_unbounded
    assert (unsure.cost_usd_per_extra_correct_low, unsure.cost_usd_per_extra_correct_high) == (None, None)


def test_where_nothing_is_gained_there_is_no_price() -> None:
    """No additional correct kernel: None in the record and words in the sentence, never a division."""
    comparison = spent(make.reply(cost=0.03), make.reply(cost=0.02), solved=0)
    assert comparison.spending is not None
    assert comparison.spending.cost_usd_per_extra_correct is None
    assert "no additional correct kernel, +$0.01 a trial" in headline(comparison)


def test_unknown_dollars_leave_tokens_and_unknown_tokens_leave_words() -> None:
    """One unknown cost makes dollars unknown; tokens step in; with neither the sentence says unknown."""
    comparison = spent(make.reply((2_000, 3_000), None), make.reply((1_000, 3_000), 0.02))
    assert comparison.spending is not None
    assert comparison.spending.cost_usd is None
    assert "2.0k tokens per extra correct kernel" in headline(comparison)
    assert "$" not in headline(comparison)
    silent = spent(make.reply(None, None), make.reply(None, None))
    assert headline(silent).endswith("; tokens and cost unknown")
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


def test_transitions_pair_all_repeats_of_a_task() -> None:
    """Half correct without and all correct with: half of the trials stay, half come from wrong_result."""
    tasks = make.families(1)
    trials = [make.trial("l1/f0t0", make.WITHOUT, *WRONG), make.trial("l1/f0t0", make.WITHOUT, repeat=1)]
    trials += [make.trial("l1/f0t0", make.WITH, repeat=k) for k in (0, 1)]
    found = first(summarise(make.run(tasks, repeats=2), trials, tasks)).transitions
    assert found is not None
    assert found.share(Verdict.WRONG_RESULT, Verdict.CORRECT) == 0.5
    assert found.share(Verdict.CORRECT, Verdict.CORRECT) == 0.5
    assert [m.words for m in found.movements] == ["wrong_result -> correct: 50% of trials"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_net_flow_into_correct_is_the_lift(seed: int) -> None:
    """Cells sum to 1, and the column of `correct` minus its row is the lift in correctness."""
    comparison = first(summarise(*make.study(seed=seed)))
    found = comparison.transitions
    assert found is not None
    assert math.fsum(cell.share for cell in found.cells) == pytest.approx(1.0)
    into = math.fsum(c.share for c in found.cells if c.treatment is Verdict.CORRECT)
    out_of = math.fsum(c.share for c in found.cells if c.control is Verdict.CORRECT)
    assert into - out_of == pytest.approx(comparison.row("correct").lift)


def test_chance_in_both_directions_is_no_movement() -> None:
    """Two arms alike, half correct each: a quarter of the pairs changes each way, and nothing moved."""
    tasks = make.families(2)
    trials = []
    for task in tasks:
        for arm in (make.WITHOUT, make.WITH):
            trials += [make.trial(task, arm, *WRONG), make.trial(task, arm, repeat=1)]
    found = first(summarise(make.run(tasks, repeats=2), trials, tasks)).transitions
    assert found is not None
    assert found.share(Verdict.WRONG_RESULT, Verdict.CORRECT) == 0.25
    assert found.movements == ()


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


def test_without_significance_there_are_fewer_or_more() -> None:
    """The same with 6 families (Holm: 3 x 2/64) is only counted."""
    found = errors(6, Cause.COMPILE_ERROR, Cause.WRONG_VALUES)
    assert {one.change for one in found.values()} == {"fewer", "more"}


def test_classes_of_stages_that_were_not_run_everywhere_are_left_out() -> None:
    """Where some trials stopped for want of a GPU, nothing is said about errors after the build."""
    run, trials, tasks = small_study(gpu=None)
    stop = (Cause.NO_CUDA_DEVICE, "no CUDA device on this machine")
    trials[-1] = make.trial("l1/f5t0", make.WITH, *stop)
    trials[0] = make.trial("l1/f0t0", make.WITHOUT, Cause.NO_FILES, "no files")
    assert [one.name for one in first(summarise(run, trials, tasks)).error_classes] == ["no_files"]
