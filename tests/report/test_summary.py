"""summarise: hand-computed rows, the policy for absent values, decisions and what blocks them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from harness.cli.eval import Threshold
from harness.errors import UsageError
from harness.outcome import Cause, Verdict
from harness.records import RunRecord, TrialRecord
from harness.report.html import render_html
from harness.report.schema import Summary
from harness.report.summary import summarise
from harness.report.wording import headline, why_builds_failed
from harness.report.write import report_markdown
from tests.report import factories as make
from tests.report import studies

WRONG = (Cause.WRONG_VALUES, "worst error 41 of the tolerance")
SPEEDS = (2.0, 2.0, 2.0, 2.0, 2.0, 4.0)


def small_study(**changes: Any) -> tuple[RunRecord, list[TrialRecord], dict[str, str]]:
    """Six families of one task: nothing correct without, everything correct with, at SPEEDS."""
    tasks = make.families(6)
    trials = [make.trial(task, make.WITHOUT, *WRONG) for task in tasks]
    trials += [make.trial(task, make.WITH, speedup=speed) for task, speed in zip(tasks, SPEEDS, strict=True)]
    return make.run(tasks, **changes), trials, tasks


def test_deployed_lift_by_hand() -> None:
    """Logs are (1,1,1,1,1,2) ln 2: mean 7/6, sign-flip p 2/64, limits the least and the largest of six."""
    row = summarise(*small_study()).comparisons[0].row("deployed")
    assert row.control == pytest.approx(1.0)
    assert row.lift == row.treatment == pytest.approx(2 ** (7 / 6))
    assert (row.low, row.high) == pytest.approx((2.0, 4.0))
    assert (row.p_value, row.p_holm, row.n_families, row.n_tasks) == (2 / 64, None, 6, 6)
    made = summarise(*small_study()).comparisons[0].conclusion
    assert (made.decision, made.metric, made.p_adjusted) == ("helps", "deployed", None)
    assert made.reason == "the interval excludes x1, p = 0.0312; 6 of 6 families differ"
    seen = summarise(*small_study()).comparisons[0].observed
    assert seen is not None
    assert seen.statement.startswith("After the fact: with 6 families (observed sd 0.28 of the log ratio)")


@pytest.mark.parametrize("n", [6, 7, 25])
def test_from_nothing_to_everything_helps(n: int) -> None:
    """0 to 100 % in every family: helps, in the decision and in every report, with an interval."""
    tasks = make.families(n)
    trials = [make.trial(task, make.WITHOUT, *WRONG) for task in tasks]
    trials += [make.trial(task, make.WITH) for task in tasks]
    summary = summarise(make.run(tasks, metric="correct"), trials, tasks)
    comparison = summary.comparisons[0]
    row = comparison.row("correct")
    assert comparison.conclusion.decision == "helps"
    assert comparison.conclusion.reason.endswith(f"; {n} of {n} families differ")
    assert (row.control, row.treatment, row.lift, row.high) == (0.0, 1.0, 1.0, 1.0)
    assert row.low == pytest.approx(0.025 ** (1 / n))
    bounds = {6: "(+54, +100)", 7: "(+59, +100)", 25: "(+86, +100)"}[n]
    said = f"helps: +100 pts correct {bounds}"
    assert headline(comparison).startswith(said)
    assert said in report_markdown(summary).replace("\\", "") and "<h2>Helps</h2>" in render_html(summary)


def families_said(before: int, after: int) -> tuple[list[str], str]:
    """Caveats and reason of a study in which so many families become right, and so many were before."""
    tasks = make.families(before + after)
    trials = [make.trial(task, make.WITH) for task in tasks]
    for index, task in enumerate(tasks):
        cause = WRONG if index < before else (Cause.PASSED, "passed")
        trials.append(make.trial(task, make.WITHOUT, *cause))
    summary = summarise(make.run(tasks, metric="correct"), trials, tasks)
    made = summary.comparisons[0]
    caveats = [caveat for caveat in made.caveats if "differ" in caveat]
    assert all(caveat in render_html(summary) and caveat in report_markdown(summary) for caveat in caveats)
    return caveats, made.conclusion.reason.rpartition("; ")[2]


def test_reports_say_what_the_families_leave_possible() -> None:
    """Six families must all agree; where some do not differ, the least p that the others can have."""
    six = "6 families: p can reach 0.05 only if all 6 differ in the same direction"
    assert families_said(4, 2) == ([six], "4 of 6 families differ, so p is at least 0.12")
    assert families_said(6, 1) == ([], "6 of 7 families differ, so p is at least 0.031")
    assert families_said(0, 7) == ([], "no difference seen")


def test_secondaries_are_holm_adjusted_together() -> None:
    """compiles, correct and raw speedup are adjusted; pass@1 is `correct` again and is not tested."""
    rows = {row.metric: row for row in summarise(*small_study()).comparisons[0].rows}
    # p: correct 2/64, compiles 1 (no difference), raw speedup None (never correct without): 3 tests.
    assert rows["correct"].p_holm == pytest.approx(3 * 2 / 64)
    assert rows["compiles"].p_holm == 1.0
    assert rows["speedup_both_correct"].p_holm is None
    assert rows["pass_at_1"].role == "descriptive"
    assert rows["pass_at_1"].p_value is None
    assert rows["pass_at_1"].lift == rows["correct"].lift


def test_slow_noisy_and_indistinct_kernels() -> None:
    """A slower or indistinct kernel deploys as 1.0x; a noisy one counts and is marked."""
    tasks = make.families(2, 2)
    names = list(tasks)
    trials = [make.trial(task, make.WITHOUT, *WRONG) for task in names]
    trials += [
        make.trial(names[0], make.WITH, speedup=0.5),
        make.trial(names[1], make.WITH, speedup=1.5, clear=False),
        make.trial(names[2], make.WITH, speedup=4.0, flags=("noisy host",)),
        make.trial(names[3], make.WITH, *WRONG),
    ]
    summary = summarise(make.run(tasks), trials, tasks)
    arm = summary.arm(make.MODEL, make.WITH.id)
    assert (arm.faster, arm.alike, arm.slower, arm.noisy) == (1, 1, 1, 1)
    assert arm.fast_p == (0.75, 0.5, 0.5, 0.5, 0.25, 0.25)
    row = summary.comparisons[0].row("deployed")
    assert row.treatment == pytest.approx(4 ** (1 / 4))  # family means of ln: 0 and ln(4)/2
    assert any("noisy host" in caveat for caveat in summary.comparisons[0].caveats)


NO_GPU = (Cause.NO_CUDA_DEVICE, "no CUDA device on this machine")


def without_gpu(metric: str, stop: tuple[Cause, str] = NO_GPU) -> Summary:
    """8 families: without never builds in half of them, with always builds; nothing goes further."""
    tasks = make.families(8)
    trials = [make.trial(task, make.WITH, *stop) for task in tasks]
    for index, task in enumerate(tasks):
        failed = (Cause.COMPILE_ERROR, "x.cu(1): error: no") if index % 2 else (Cause.NO_FILES, "no files")
        trials.append(make.trial(task, make.WITHOUT, *(failed if index < 7 else stop)))
    return summarise(make.run(tasks, metric=metric, gpu=None), trials, tasks)


def test_not_measured_counts_in_the_compile_rate_only() -> None:
    """The build decides `compiles`, the rest is not measured; without a compiler nothing is."""
    summary = without_gpu("deployed")
    comparison = summary.comparisons[0]
    assert comparison.row("compiles").control == pytest.approx(1 / 8)
    assert comparison.row("compiles").treatment == 1.0
    for metric in ("correct", "deployed", "speedup_both_correct", "pass_at_1"):
        row = comparison.row(metric)
        assert row.not_measured == "no CUDA device"
        assert (row.control, row.treatment, row.lift, row.p_value) == (None, None, None, None)
    arm = summary.arm(make.MODEL, make.WITHOUT.id)
    assert arm.compiled is not None
    assert (arm.compiled.count, arm.compiled.n) == (1, 8)
    assert (arm.correct, arm.slower, arm.fast_p, arm.tokens_per_correct) == (None, None, None, None)
    assert comparison.conclusion.reason == "deployed was not measured: no CUDA device"
    assert summary.build_gap is None
    assert summary.check_gap is not None
    assert (summary.check_gap.trials, summary.check_gap.message) == (9, "no CUDA device on this machine")
    assert all(cell.correct is None for row in summary.tasks for cell in row.cells)
    assert without_gpu("compiles").comparisons[0].conclusion.decision == "helps"
    no_compiler = without_gpu("compiles", (Cause.NO_TOOLCHAIN, "nvcc not found"))
    comparison = no_compiler.comparisons[0]
    assert comparison.row("compiles").not_measured == "no CUDA toolchain"
    assert no_compiler.arm(make.MODEL, make.WITH.id).compiled is None
    assert comparison.conclusion.decision == "inconclusive"


def infra_study(lost: int) -> Summary:
    """20 families, all wrong without and 2x or 3x with, of which some are lost to infra."""
    tasks = make.families(20)
    trials = [make.trial(task, make.WITHOUT, *WRONG) for task in tasks]
    for index, task in enumerate(tasks):
        if index < lost:
            trials.append(make.trial(task, make.WITH, Cause.PROVIDER, "HTTP 529", failures=2))
        else:
            trials.append(make.trial(task, make.WITH, speedup=2.0 + index % 2, failures=index == 19))
    return summarise(make.run(tasks), trials, tasks)


def test_infra_trials_are_absent_everywhere() -> None:
    """They leave the rates, and their tasks the comparison; where one arm lost more, nothing is decided."""
    summary = infra_study(2)
    arm = summary.arm(make.MODEL, make.WITH.id)
    assert arm.correct is not None
    assert (arm.correct.count, arm.correct.n, arm.infra_trials, arm.infra_failures) == (18, 18, 2, 7)
    assert (summary.progress.infra_trials, summary.progress.infra_failures) == (2, 7)
    assert (summary.progress.finished, summary.progress.scored, summary.progress.owed) == (40, 38, 0)
    row = summary.comparisons[0].row("correct")
    assert (row.n_tasks, row.n_dropped_tasks) == (18, 2)
    assert summary.comparisons[0].conclusion.decision == "helps"
    comparison = infra_study(6).comparisons[0]  # 6 of 20 lost against 0 of 20
    assert comparison.infra_p == pytest.approx(0.0202, abs=5e-5)
    assert comparison.conclusion.decision == "inconclusive"
    assert comparison.conclusion.reason.startswith("infra rates differ between with_skill and without_skill")


@pytest.mark.parametrize(("placebo_speed", "expected"), [(1.0, "helps"), (3.0, "inconclusive")])
def test_the_skill_must_beat_the_placebo(placebo_speed: float, expected: str) -> None:
    """A placebo that does as well takes the decision away."""
    run, trials, tasks = small_study(arms=(make.WITHOUT, make.WITH, make.PLACEBO))
    trials += [make.trial(task, make.PLACEBO, speedup=placebo_speed) for task in tasks]
    comparison = summarise(run, trials, tasks).comparisons[0]
    assert comparison.conclusion.decision == expected
    assert "placebo" in comparison.conclusion.reason
    assert comparison.placebo_row is not None
    assert comparison.placebo_row.control == pytest.approx(placebo_speed)


def test_an_old_skill_is_a_second_control() -> None:
    """With an old_skill arm there are two comparisons, each with its own control and no Holm between."""
    run, trials, tasks = small_study(
        arms=(make.WITHOUT, make.WITH, make.OLD), lock_skills={"new": make.SKILL, "ours": "4" * 64}
    )
    trials += [make.trial(task, make.OLD, speedup=1.5) for task in tasks]
    comparisons = summarise(run, trials, tasks).comparisons
    assert [c.control_label for c in comparisons] == ["without skill", "old ours"]
    assert [c.conclusion.p_adjusted for c in comparisons] == [None, None]
    assert comparisons[1].row("deployed").control == pytest.approx(1.5)


def test_one_unknown_cost_makes_the_sum_unknown() -> None:
    """Unknown is None, in the arm and in the run, and never 0."""
    run, trials, tasks = small_study()
    trials[0] = make.trial("l1/f0t0", make.WITHOUT, *WRONG, answer=make.reply(cost=None))
    trials[-1] = make.trial("l1/f5t0", make.WITH, speedup=4.0, answer=make.reply(tokens=None))
    summary = summarise(run, trials, tasks)
    without, skilled = (summary.arm(make.MODEL, arm.id) for arm in (make.WITHOUT, make.WITH))
    assert (without.usage.cost_usd, without.usage.tokens) == (None, 24_000)
    assert skilled.usage.tokens is skilled.tokens_per_correct is None
    assert skilled.usage.cost_usd == pytest.approx(0.12)
    assert skilled.cost_usd_per_correct == pytest.approx(0.02)
    assert summary.totals.cost_usd is None
    assert summary.totals.tokens is None


def test_the_plan_decides_what_counts() -> None:
    """Unplanned arms are left out with a warning, the last record of a key counts, in any order of lines."""
    run, trials, tasks = small_study()
    random.Random(3).shuffle(trials)
    trials.append(make.trial("l1/f0t0", make.PLACEBO))
    trials.append(make.trial("l1/f0t0", make.WITHOUT, speedup=1.0))
    summary = summarise(run, trials, tasks)
    assert (summary.progress.finished, summary.progress.unplanned) == (12, 1)
    assert summary.trials[0].verdict is Verdict.CORRECT
    row = summary.comparisons[0].row("speedup_both_correct")  # of the one task that both arms solved
    assert (row.control, row.treatment, row.lift) == pytest.approx((1.0, 2.0, 2.0))
    assert (row.n_tasks, row.n_dropped_tasks) == (1, 5)
    assert any("not in this run's plan" in warning for warning in summary.warnings)


@pytest.mark.parametrize("text", ["joy=3", "correct", "correct=1,compiles=1"])
def test_bad_thresholds_and_tasks_without_a_family_are_refused(text: str) -> None:
    """Usage errors: another `--fail-under`, and a task whose family is not known."""
    with pytest.raises(UsageError, match=r"--fail-under .*: write compiles=0\.1, correct=0\.1 or deployed="):
        Threshold.parse(text)
    run, trials, tasks = small_study()
    del tasks["l1/f3t0"]
    with pytest.raises(UsageError, match="l1/f3t0"):
        summarise(run, trials, tasks)


def test_a_missed_threshold_names_metric_model_skill_wanted_and_measured() -> None:
    """Each comparison that missed it, or was not measured."""
    summary = summarise(*studies.two_skills())
    first, second = summary.comparisons
    wanted = "--fail-under wanted a lift of deployed=2.5"
    assert Threshold.parse("deployed=2.5").missed(summary) == (
        f"{wanted}, {first.model} x {first.label}: measured 1",
        f"{wanted}, {second.model} x {second.label}: not measured",
    )
    assert "not measured (no CUDA" in Threshold.parse("correct=0.1").missed(without_gpu("deployed"))[0]
    assert Threshold.parse("correct=0.01").missed(summarise(*small_study())) == ()


def test_failed_builds_are_counted_by_their_first_error() -> None:
    """Causes and kinds by arm, with the compiler's first error as the example."""
    tasks = make.families(3)
    a, b, c = tasks
    trials = [make.trial(a, arm, Cause.COMPILE_ERROR, make.NVCC) for arm in (make.WITHOUT, make.WITH)]
    trials += [make.trial(b, make.WITHOUT, Cause.COMPILE_ERROR, make.NVCC)]
    trials += [make.trial(b, make.WITH, Cause.BAD_BUILD_TOML, "expected a list")]
    trials += [make.trial(c, make.WITHOUT, Cause.WRONG_VALUES, "w"), make.trial(c, make.WITH)]
    summary = summarise(make.run(tasks), trials, tasks)
    cause = summary.failures[0]
    assert (cause.cause, cause.total, [n.count for n in cause.counts]) == (Cause.COMPILE_ERROR, 3, [2, 1])
    assert cause.example == 'rms_norm_cuda/rms_norm.cu(41): error: identifier "__nv_bfloat162" is undefined'
    syntax, toml = summary.build_failures
    assert (syntax.kind, syntax.total, [n.count for n in syntax.counts]) == ("syntax", 3, [2, 1])
    assert syntax.example.startswith('rms_norm_cuda/rms_norm.cu:41: identifier "__nv_bfloat162"')
    assert (toml.kind, toml.total, [n.count for n in toml.counts]) == ("build_toml", 1, [0, 1])
    assert why_builds_failed(summary) == [
        'without skill: rms_norm.cu: identifier "__nv_bfloat162" is undefined (2 of 2)',
        'cuda-kernel-builder: rms_norm.cu: identifier "__nv_bfloat162" is undefined (1 of 2)',
        "cuda-kernel-builder: build.toml: expected a list (1 of 2)",
    ]
    row = next(t for t in summary.trials if t.cause is Cause.BAD_BUILD_TOML)
    assert [(d.file, d.line) for d in row.diagnostics] == [("build.toml", 12)]


@pytest.mark.parametrize(
    ("cause", "one", "other", "groups"),
    [
        (Cause.COMPILE_ERROR, "x\ny\nerror: 'a' was not declared", "x\ny\nerror: 'b' was not declared", 1),
        (Cause.COMPILE_ERROR, "x\ny\nerror: 'a' was not declared", "x\ny\nerror: expected ';'", 2),
        (Cause.BAD_BUILD_TOML, "unknown key 'a'", "unknown key 'b'", 2),
    ],
)
def test_names_of_a_project_do_not_tell_errors_apart(cause: Cause, one: str, other: str, groups: int) -> None:
    """Compilers' errors are grouped without the names in them; keys of build.toml are the error."""
    tasks = make.families(2)
    trials = [make.trial(t, make.WITH, cause, m) for t, m in zip(tasks, (one, other), strict=True)]
    assert len(summarise(make.run(tasks), trials, tasks).build_failures) == groups


def test_warnings_name_what_weakens_the_run() -> None:
    """local, recorded replies and a second machine are said aloud."""
    run, trials, tasks = small_study(sandbox="local")
    trials[0] = make.trial(
        "l1/f0t0", make.WITHOUT, *WRONG, answer=make.reply(recorded=True), machine="0" * 12, sandbox="local"
    )
    summary = summarise(run, trials, tasks)
    assert summary.head.sandbox_weak
    for said in ("sandbox local", "1 recorded reply", "2 different machines"):
        assert any(said in warning for warning in summary.warnings)
    assert (summary.replies.recorded, summary.replies.live) == (1, 11)
