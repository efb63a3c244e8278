"""The first screen, character by character."""

from __future__ import annotations

import io
from textwrap import dedent

import pytest
from rich.console import Console

from harness.outcome import Cause
from harness.report.html import render_html
from harness.report.markdown import report_markdown
from harness.report.records import Summary
from harness.report.summary import summarise
from harness.report.terminal import print_summary
from tests.report import factories as make
from tests.report import studies
from tests.report.test_summary import WRONG, infra_study, small_study, without_gpu


def screen(summary: Summary, width: int = 80, **options: object) -> str:
    out = io.StringIO()
    print_summary(summary, Console(file=out, width=width, **options))  # type: ignore[arg-type]
    return out.getvalue()


def test_first_screen_at_80_columns() -> None:
    """The table of DESIGN.md, folded to 80 columns, without colour when not a terminal."""
    assert screen(summarise(*small_study())) == dedent(
        """\
        helps: x2.24 deployed (x2.00, x4.00); no extra cost
        claude-haiku-4-5 x cuda-kernel-builder
        6 tasks x 1 run   sm_90 (NVIDIA H200)   sandbox docker
                      without     with      lift   95% CI, by family
        compiles         100%     100%     0 pts   n/a
        correct            0%     100%  +100 pts   (+54, +100)
        deployed*       1.00x    2.24x     x2.24   (x2.00, x4.00)
        tokens/correct    n/a     4.0k       n/a
        $/correct         n/a    $0.02       n/a
        * failed or slower counts as 1.0x
        decision (on deployed): helps
          the interval excludes x1, p = 0.0312; 6 of 6 families differ
          6 families: p can be at most 0.05 only where all 6 differ in the same
            direction
          6 families: below 20 the deployed score is skewed, so its interval is
            approximate
        where lift comes from (net): wrong_result -> correct: 100%
        errors removed: wrong_values 100% -> 0%
        """
    )


def test_first_screen_on_a_wide_terminal() -> None:
    """Where there is room, head and footnote stand beside what they belong to."""
    lines = screen(summarise(*small_study()), 120).splitlines()
    assert lines[1] == (
        "claude-haiku-4-5 x cuda-kernel-builder        6 tasks x 1 run   sm_90 (NVIDIA H200)   sandbox docker"
    )
    assert lines[5].endswith("(x2.00, x4.00)      * failed or slower counts as 1.0x")


@pytest.mark.parametrize("n", [2, 5])
def test_few_families_show_no_interval_anywhere(n: int) -> None:
    """Half a share or a ratio of two families has no interval: n/a and words in every report, no figure."""
    tasks = make.families(n)
    trials = [make.trial(task, make.WITHOUT, *WRONG) for task in tasks]
    trials += [make.trial(task, make.WITH, speedup=2.0 + i) for i, task in enumerate(list(tasks)[1:])]
    trials.append(make.trial(next(iter(tasks)), make.WITH, *WRONG))
    summary = summarise(make.run(tasks), trials, tasks)
    (made,) = summary.comparisons
    points = (*made.rows, *made.fast_p, *made.error_classes, *made.passes)
    assert all(point.low is None and point.high is None for point in points)
    text = screen(summary)
    assert "deployed (no interval)" in text and "too few families" in text
    assert [line[-3:] for line in text.splitlines() if line.startswith("correct")] == ["n/a"]
    assert "| n/a |" in report_markdown(summary) and "(no interval, p" in render_html(summary)


def test_without_a_gpu() -> None:
    """Later stages say not measured, and why; nothing is shown in their place."""
    assert screen(without_gpu("deployed")) == dedent(
        """\
        inconclusive: deployed was not measured: no CUDA device
        claude-haiku-4-5 x cuda-kernel-builder
        8 tasks x 1 run   sm_90 (no GPU on this machine)   sandbox docker
                      without     with      lift   95% CI, by family
        compiles          12%     100%   +88 pts   (+47, +100)
        correct       not measured (no CUDA device)
        deployed*     not measured (no CUDA device)
        decision (on deployed): inconclusive: deployed was not measured: no CUDA device
        where lift comes from (net): no_project -> not_measured: 50%, build_failed ->
          not_measured: 38%
        correctness and speed not measured in 9 trials (no CUDA device): no CUDA device
          on this machine
        """
    )


def test_infra_owed_and_local_are_said() -> None:
    """What was retried, lost, owed, and a weak sandbox each have a line."""
    text = screen(infra_study(2))
    assert (
        "decision (on deployed): helps\n  5 infra failures retried, not scored; 2 trials lost to infra"
        in text
    )
    run, trials, tasks = small_study(sandbox="local")
    text = screen(summarise(run, trials[:-2], tasks))
    assert "2 of 12 planned trials not measured yet: resume to finish" in text
    assert "sandbox local: student code ran with little isolation" in text


def test_unknown_cost_is_not_zero() -> None:
    """An unknown price prints as unknown; with no price at all there is no line."""
    run, trials, tasks = small_study()
    trials[-1] = make.trial("l1/f5t0", make.WITH, speedup=4.0, answer=make.reply(cost=None))
    assert "$/correct         n/a  unknown       n/a" in screen(summarise(run, trials, tasks))
    free = [
        make.trial(t, arm, answer=make.reply(cost=None)) for t in tasks for arm in (make.WITHOUT, make.WITH)
    ]
    assert "$/correct" not in screen(summarise(run, free, tasks))


def test_two_models_and_a_placebo() -> None:
    """One block per comparison, each with its placebo line under the primary metric."""
    from harness.records import ModelSpec

    models = (ModelSpec(name=make.MODEL), ModelSpec(name=make.OTHER))
    run, trials, tasks = make.study(models=models, arms=(make.WITHOUT, make.WITH, make.PLACEBO))
    lines = screen(summarise(run, trials, tasks)).splitlines()
    heads = [i for i, line in enumerate(lines) if line.endswith(" x cuda-kernel-builder")]
    assert [lines[i].split()[0] for i in heads] == ["claude-haiku-4-5", "gpt-5-mini"]
    for head in heads:
        assert lines[head + 5].startswith("deployed*")
        assert lines[head + 6].startswith("  vs placebo")


def test_a_run_without_a_skill_shows_rates() -> None:
    """With nothing to compare there are rates with Wilson intervals, and no lift."""
    tasks = make.families(2)
    a, b = tasks
    trials = [make.trial(a, make.WITHOUT), make.trial(b, make.WITHOUT, *WRONG)]
    text = screen(summarise(make.run(tasks, arms=(make.WITHOUT,)), trials, tasks))
    assert "correct           50%   1 of 2   95% CI (9%, 91%)" in text
    assert "lift" not in text


def test_an_empty_run_prints() -> None:
    """No finished trial: everything n/a, and it says so."""
    run, _, tasks = small_study()
    text = screen(summarise(run, [], tasks))
    assert "correct           n/a      n/a       n/a   n/a" in text
    assert "no trial has finished" in text


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("gpu", [True, False])
def test_no_line_is_wider_than_the_terminal(width: int, gpu: bool) -> None:
    """Lines are folded by us, never by the terminal."""
    text = screen(summarise(*make.study(gpu=gpu)), width)
    assert max(map(len, text.splitlines())) <= max(width, 80)


def test_colour_changes_nothing_but_colour() -> None:
    """With colour the words are the same."""
    from harness.text import clean

    summary = summarise(*make.study())
    coloured = screen(summary, force_terminal=True, color_system="standard")
    assert "\x1b[" in coloured
    assert clean(coloured) == screen(summary)


def test_hostile_text_neither_drives_the_terminal_nor_is_markup() -> None:
    """Escape sequences go, rich markup stays as text."""
    tasks = make.families(1)
    trials = [make.trial(t, make.WITH, Cause.NO_CUDA_DEVICE, "\x1b]0;owned\x07[bold]\x00no") for t in tasks]
    text = screen(summarise(make.run(tasks), trials, tasks))
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "(no CUDA device): [bold]no" in text


def test_turns_matrix_and_reading_have_their_lines() -> None:
    """Repairs show a row per turn, several skills a matrix, a disclosed skill what was read."""
    lines = screen(summarise(*studies.repairs())).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("deployed, turn by turn"))
    assert [line.split()[0] for line in lines[start + 2 : start + 5]] == ["1", "2", "3"]
    text = screen(summarise(*studies.combinations()), 120)
    assert "claude-haiku-4-5         helps +55 pts" in text
    narrow = screen(summarise(*studies.combinations()))
    assert "gpt-5-mini x cuda-kernel-builder + fast-memory: inconclusive +50 pts" in narrow
    assert "cuda-kernel-builder/SKILL.md: 50% of 8 trials, about 4.0k tokens" in screen(
        summarise(*studies.disclosed())
    )


def test_the_matrix_leads_where_there_are_many_comparisons() -> None:
    """Six comparisons: the matrix is the first thing, each decision follows; one is not led by any."""
    lines = screen(summarise(*studies.combinations()), 120).splitlines()
    assert lines[0] == "decision and lift in correct, against without skill"
    first = next(i for i, line in enumerate(lines) if line.startswith("helps: +55 pts correct"))
    assert lines[first - 1] == "" and first < 8
    assert sum(line.startswith("decision and lift") for line in lines) == 1


def test_few_comparisons_come_before_their_matrix() -> None:
    """Two skills, one model: two decisions, then the table of both."""
    lines = screen(summarise(*studies.two_skills())).splitlines()
    places = [i for i, line in enumerate(lines) if line.startswith(("decision (on", "decision and lift"))]
    assert [lines[i][:12] for i in places] == ["decision (on", "decision (on", "decision and"]


def test_the_label_says_the_level() -> None:
    """At alpha 0.0125 the column is a 98.75% interval, and the look is named."""
    text = screen(summarise(*studies.leaked(alpha=0.0125)))
    assert "98.75% CI, by family" in text
    assert "look 2 of this skill's lineage" in text
    assert "1 task left out, as a skill repeats the reference: l1/f0t0" in text


@pytest.mark.parametrize("kind", ["repairs", "combinations", "disclosed", "leaked"])
def test_no_line_of_any_study_is_wider_than_80(kind: str) -> None:
    """Tables under the decision fold, too."""
    text = screen(summarise(*getattr(studies, kind)()))
    assert max(map(len, text.splitlines())) <= 80
