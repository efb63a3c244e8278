"""Terminal, HTML, Markdown, CSV, JSON and JUnit: what each shows, and that hostile text is inert."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from harness.outcome import Cause
from harness.records import ModelSpec
from harness.report.html import question, render_html
from harness.report.schema import Summary
from harness.report.summary import summarise
from harness.report.terminal import print_summary
from harness.report.write import (
    COLUMNS,
    junit_xml,
    report_json,
    report_markdown,
    schema_text,
    trials_csv,
    write_reports,
)
from harness.text import clean
from tests.report import factories as make
from tests.report import studies
from tests.report.test_summary import WRONG, infra_study, small_study, without_gpu

ROOT = Path(__file__).parents[2]
HOSTILE = (
    '<script>alert(1)</script>\x1b[31m\x00<img src=x onerror=alert(2)>" onload="alert(3) </pre></details>'
)
MODELS = (ModelSpec(name=make.MODEL), ModelSpec(name=make.OTHER))


def screen(summary: Summary, width: int = 80, **options: object) -> str:
    out = io.StringIO()
    print_summary(summary, Console(file=out, width=width, **options))  # type: ignore[arg-type]
    return out.getvalue()


RENDERERS: dict[str, Callable[[Summary], str]] = {
    "terminal": lambda summary: screen(summary, 400),
    "markdown": lambda summary: report_markdown(summary).replace("\\", ""),
    "html": render_html,
}
every_renderer = pytest.mark.parametrize("render", RENDERERS.values(), ids=list(RENDERERS))


def hostile_summary() -> Summary:
    """A run in which every text that a student or provider can choose is hostile."""
    tasks = make.families(2)
    answer = make.reply(model_label=HOSTILE)
    trials = [
        make.trial(task, arm, Cause.COMPILE_ERROR, f"error: {HOSTILE}\n{HOSTILE}", answer=answer)
        for task in tasks
        for arm in (make.WITHOUT, make.WITH)
    ]
    return summarise(make.run(tasks), trials, tasks)


@cache
def summaries() -> dict[str, Summary]:
    """One of every kind that looks different."""
    run, _, tasks = small_study()
    crowded = make.study(
        models=MODELS, arms=(make.WITHOUT, make.WITH, make.PLACEBO, make.OLD), sandbox="local"
    )
    return {
        "study": summarise(*make.study()),
        "no gpu": without_gpu("deployed"),
        "empty": summarise(run, [], tasks),
        "half": summarise(crowded[0], crowded[1][:700], crowded[2]),
        "no skill": summarise(make.run(tasks, arms=(make.WITHOUT,)), [], tasks),
        "hostile": hostile_summary(),
        "repairs": summarise(*studies.repairs()),
        "combinations": summarise(*studies.combinations()),
        "two skills": summarise(*studies.two_skills()),
        "disclosed": summarise(*studies.disclosed()),
        "leaked": summarise(*studies.leaked(alpha=0.0125)),
        "kernelbench": summarise(*studies.kernelbench()),
    }


every_kind = pytest.mark.parametrize("name", summaries())


# The same facts in every report


@every_renderer
def test_the_matrix_leads_where_there_are_many_comparisons(render: Callable[[Summary], str]) -> None:
    """Six comparisons: the matrix stands before the decisions; two: after them."""
    head = re.compile(r"decisions? and lift in \w+|Decisions on \w+|Which skills help which models", re.I)
    many, few = render(summaries()["combinations"]), render(summaries()["two skills"])
    for text, leads in ((many, True), (few, False)):
        matrix, decision = head.search(text), re.search(r"(helps|inconclusive): [+x×]", text)
        assert matrix is not None and decision is not None
        assert (matrix.start() < decision.start()) is leads
    assert "(no interval)" in few or "<small>no interval</small>" in few


@every_renderer
def test_both_scores_of_kernelbench_stand_side_by_side(render: Callable[[Summary], str]) -> None:
    """Six of its problems: our clock says 1.3x, the processes 2.5x; a run without them says nothing of it."""
    text = re.sub(r"<[^>]+>|[|]", " ", render(summaries()["kernelbench"]))
    assert re.search(r"\b1(\.00)?[x×]\s+0%\s+83%\s+\+83 pts\s+\(0, \+100\)\s+0%\s+83%", text)
    assert re.search(r"\b2(\.00)?[x×]\s+0%\s+0%\s+0 pts\s+n/a\s+0%\s+83%", text)
    assert "KernelBench" not in render(summarise(*small_study()))


@every_renderer
def test_a_disclosed_skill_that_was_never_read_is_warned_of(render: Callable[[Summary], str]) -> None:
    """Such a lift says nothing of the skill's content; what was read has its table."""
    record, trials, tasks = studies.disclosed()
    warning = "its lift does not measure its content"
    bare = [
        t.model_copy(update={"turns": tuple(u.model_copy(update={"steps": ()}) for u in t.turns)})
        for t in trials
    ]
    assert warning in render(summarise(record, bare, tasks))
    text = render(summaries()["disclosed"])
    assert warning not in text and "cuda-kernel-builder/SKILL.md" in text and "4.0k" in text
    rare = [one if i < 4 else other for i, (one, other) in enumerate(zip(trials, bare, strict=True))]
    [rarely] = [w for w in summarise(record, rare, tasks).warnings if "was read in" in w]
    assert "cuda-kernel-builder was read in 1 of 8 trials" in rarely


@every_renderer
def test_origin_and_turns_of_a_lift_are_shown(render: Callable[[Summary], str]) -> None:
    """Movements between verdicts, errors that were removed, and a row per turn."""
    text = re.sub(r"<[^>]+>", "", render(summaries()["repairs"])).replace("&rarr;", "->")
    assert "wrong_result -> correct: 21%" in text
    assert re.search(r"removed:? wrong.values|wrong.values", text) and "removed" in text
    assert re.search(r"turn by turn", text, re.I) and "+965%/$" in text


@every_renderer
def test_hostile_text_is_inert(render: Callable[[Summary], str]) -> None:
    """No control characters and no markup of a student's anywhere."""
    text = render(hostile_summary())
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text) is None
    tasks = make.families(1)
    trials = [make.trial("l1/f0t0", make.WITH, Cause.NO_CUDA_DEVICE, "a | b <img src=x> `c` [d](e)")]
    raw = report_markdown(summarise(make.run(tasks), trials, tasks))
    assert r"a \| b \<img src=x\> \`c\` \[d\](e)" in raw
    if text.startswith("<!DOCTYPE"):
        assert "<script>alert" not in text and "<img" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


# Terminal


def test_the_screen_at_80_columns() -> None:
    """Without a GPU: the decision, the table with what was not measured, and why; no color in a file."""
    lines = screen(without_gpu("deployed")).splitlines()
    assert lines[0] == "inconclusive: deployed was not measured: no CUDA device"
    assert lines[1].endswith(" x cuda-kernel-builder, briefing full")
    assert lines[2] == "8 tasks x 1 run   sm_90 (no GPU on this machine)   sandbox docker"
    assert lines[4:6] == [
        "compiles       █           12% ████████   100%   +88 pts   (+47, +100)",
        "correct       not measured (no CUDA device)",
    ]
    assert "  without skill: rms_norm.cu: " in screen(without_gpu("deployed"))
    assert "where lift comes from (net): no_project -> not_measured: 50%, build_failed ->" in lines
    assert "correctness and speed not measured in 9 trials (no CUDA device): no CUDA device" in lines
    lines = screen(summarise(*small_study()), 120).splitlines()
    assert lines[1].endswith("6 tasks x 1 run   sm_90 (NVIDIA H200)   sandbox docker")
    assert lines[5].endswith("(x2.00, x4.00)     * failed or not clearly faster: 1.0x")
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_summary(without_gpu("deployed"), Console(file=plain, width=80))
    plain.seek(0)
    assert "compiles       #           12% ########   100%   +88 pts   (+47, +100)" in plain.read()


def test_blocks_of_two_models_with_a_placebo_and_rates_without_a_skill() -> None:
    """One block per comparison, with a placebo line under the primary metric; without a skill, rates."""
    lines = screen(summaries()["half"]).splitlines()
    heads = [i for i, line in enumerate(lines) if line.endswith(" x cuda-kernel-builder, briefing full")]
    assert {lines[i].split()[0] for i in heads} == {"claude-haiku-4-5", "gpt-5-mini"}
    placebos = [i for i, line in enumerate(lines) if line.startswith("  vs placebo")]
    assert placebos and all(lines[i - 1].startswith("deployed*") for i in placebos)
    a, b = tasks = make.families(2)
    trials = [make.trial(a, make.WITHOUT), make.trial(b, make.WITHOUT, *WRONG)]
    text = screen(summarise(make.run(tasks, arms=(make.WITHOUT,)), trials, tasks))
    assert "correct           50%   1 of 2   95% CI (9%, 91%)" in text and "lift" not in text


def test_infra_owed_weak_sandbox_and_unknown_cost_are_said() -> None:
    """What was retried, lost, owed or unknown has a line, and is never 0."""
    text = screen(infra_study(2))
    assert "5 infra failures retried, not scored; 2 trials lost to infra" in text
    run, trials, tasks = small_study(sandbox="local")
    text = screen(summarise(run, trials[:-2], tasks))
    assert "2 of 12 planned trials not measured yet: resume to finish" in text
    assert "sandbox local: student code ran with little isolation" in text
    trials[-1] = make.trial("l1/f5t0", make.WITH, speedup=4.0, answer=make.reply(cost=None))
    assert re.search(r"^\$/correct +n/a +unknown +n/a$", screen(summarise(run, trials, tasks)), re.M)
    free = [make.trial(t, a, answer=make.reply(cost=None)) for t in tasks for a in (make.WITHOUT, make.WITH)]
    assert "$/correct" not in screen(summarise(run, free, tasks))
    empty = summaries()["empty"]
    assert "no trial has finished" in screen(empty) and empty.progress.owed == 12
    assert empty.comparisons[0].conclusion.reason == "no task has a scored trial in both arms"


@every_kind
def test_no_line_is_wider_than_the_terminal(name: str) -> None:
    """Lines are folded by us, never by the terminal; color changes nothing else."""
    summary = summaries()[name]
    for width in (60, 80, 160):
        assert max(map(len, screen(summary, width).splitlines())) <= max(width, 80)
    colored = screen(summary, force_terminal=True, color_system="standard")
    assert "\x1b[" in colored and clean(colored) == screen(summary)


# HTML


class Page(HTMLParser):
    """Every tag with its attributes, checking that they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "br", "wbr", "hr", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.tags if tag == name]


@every_kind
def test_page_is_self_contained_well_formed_and_accessible(name: str) -> None:
    """Nothing to load, one script of ours, tags that nest, links that lead somewhere, labels and scopes."""
    text = render_html(summaries()[name])
    page = Page(text)
    assert re.search(r"https?:|//[a-z]|@import|url\(", text, re.IGNORECASE) is None
    assert len(page.all("script")) == len(page.all("h1")) == 1
    assert page.all("link") == page.all("img") == page.all("iframe") == []
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on")]
    ids = [str(attrs["id"]) for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        target = str(link["href"])
        assert target[0] == "#" and target[1:] in ids, target
    assert page.all("html") == [{"lang": "en"}]
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in page.all("svg"))
    assert all(th.get("scope") in ("col", "row") for th in page.all("th"))


def test_page_says_what_the_numbers_are() -> None:
    """Question, decision, device, limits, why builds failed; nothing for what was not measured."""
    assert question(summaries()["no skill"]) == "How well claude-haiku-4-5 writes GPU kernels"
    text = render_html(summarise(*small_study()))
    assert "<h2>Helps</h2>" in text
    assert "Deployed speed goes from 1.00× to 2.24×, ×2.24 (95% CI ×2.00 to ×4.00, p = 0.031; 6 fam" in text
    assert "sm_90 (NVIDIA H200)" in text and "fewer than 6 families" in text
    text = render_html(summaries()["study"])
    assert "Does cuda-kernel-builder make claude-haiku-4-5 write better GPU kernels?" in text
    assert "Why builds failed" in text and '<th scope="row">build toml</th>' in text
    assert "<b>syntax</b> <code>rms_norm_cuda/rms_norm.cu:41:13</code> identifier" in text
    text = render_html(summaries()["no gpu"])
    assert "Deployed speed was not measured (no CUDA device)." in text
    assert "deployed not measured (no CUDA device)" in text and "fast_p)</b>" not in text
    text = render_html(summaries()["leaked"])
    assert "leaked: counted nowhere" in text and "98.75% CI, by family" in text


# Files


def test_csv_has_a_line_per_trial_and_empty_cells_for_unknown() -> None:
    """Unknown and not reached are empty, never 0; text is never a formula."""
    run, trials, tasks = small_study()
    formula = "=cmd|'/C calc'!A0\nmore"
    trials[0] = make.trial("l1/f0t0", make.WITHOUT, Cause.NO_FILES, formula, answer=make.reply(None, None))
    rows = list(csv.DictReader(io.StringIO(trials_csv(summarise(run, trials, tasks).trials))))
    first = rows[0]
    assert (len(rows), tuple(first), first["verdict"]) == (12, COLUMNS, "no_project")
    assert {first[c] for c in ("tokens", "cost_usd", "speedup", "build_wall_s")} == {""}
    assert first["headline"] == "'=cmd|'/C calc'!A0"
    assert first["folder"] == "trials/l1/f0t0/anthropic-claude-haiku-4-5/without_skill/0"


def test_junit_counts_and_kinds() -> None:
    """Failures, errors (infra) and skips (not measured) are told apart; hostile text stays well-formed."""
    root = ElementTree.fromstring(junit_xml(infra_study(2)))
    counts = {suite.get("name", "").split()[1]: dict(suite.attrib) for suite in root}
    assert counts["without_skill"]["failures"] == "20"
    assert counts[make.WITH.id]["errors"] == "2"
    assert ElementTree.fromstring(junit_xml(without_gpu("deployed"))).findall(".//skipped")
    message = ElementTree.fromstring(junit_xml(hostile_summary())).find(".//failure")
    assert message is not None and "<script>" in str(message.text)


@every_kind
def test_json_reads_back(name: str) -> None:
    """report.json is the whole Summary."""
    assert Summary.model_validate_json(report_json(summaries()[name])) == summaries()[name]


def test_published_schema_is_current() -> None:
    """docs/report.schema.json; renew with python -m harness.report.write."""
    assert (ROOT / "docs" / "report.schema.json").read_text(encoding="utf-8") == schema_text()


def test_reports_replace_their_predecessors(tmp_path: Path) -> None:
    """All five files are written over old ones, without temporary ones beside them."""
    (tmp_path / "report.html").write_text("old")
    paths = write_reports(tmp_path, hostile_summary())
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in paths)
    assert {p.name for p in paths} == {"report.html", "report.json", "report.md", "trials.csv", "junit.xml"}
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
