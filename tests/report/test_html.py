"""The page: self-contained, escaped, accessible, and rendered by a browser without complaint."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from harness.outcome import Cause
from harness.records import ModelSpec
from harness.report.html import question, render_html
from harness.report.records import Summary
from harness.report.summary import summarise
from tests.report import factories as make
from tests.report import studies
from tests.report.test_summary import small_study, without_gpu

HOSTILE = (
    '<script>alert(1)</script>\x1b[31m\x00<img src=x onerror=alert(2)>" onload="alert(3) </pre></details>'
)
_VOID = {"meta", "link", "img", "br", "hr", "input"}


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
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attrs for tag, attrs in self.tags if tag == name]


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
def pages() -> dict[str, Summary]:
    """One summary of every kind that looks different."""
    run, _, tasks = small_study()
    models = (ModelSpec(name=make.MODEL), ModelSpec(name=make.OTHER))
    crowded = make.study(
        models=models, arms=(make.WITHOUT, make.WITH, make.PLACEBO, make.OLD), sandbox="local"
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
        "disclosed": summarise(*studies.disclosed()),
        "leaked": summarise(*studies.leaked(alpha=0.0125)),
    }


NAMES = tuple(pages())


@pytest.mark.parametrize("name", NAMES)
def test_page_is_self_contained_and_well_formed(name: str) -> None:
    """No address to load from, one script of ours, tags that nest, links that lead somewhere."""
    text = render_html(pages()[name])
    page = Page(text)
    assert re.search(r"https?:|//[a-z]|@import|url\(", text, re.IGNORECASE) is None
    assert len(page.all("script")) == 1
    assert page.all("link") == page.all("img") == page.all("iframe") == []
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith("on")]
    ids = [str(attrs["id"]) for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        target = str(link["href"])
        assert target.startswith("trials/") or target[1:] in ids, target


@pytest.mark.parametrize("name", NAMES)
def test_page_is_accessible(name: str) -> None:
    """Language, one h1, figures with a label, table headers with a scope."""
    page = Page(render_html(pages()[name]))
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == 1
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in page.all("svg"))
    assert all(th.get("scope") in ("col", "row") for th in page.all("th"))


def test_hostile_text_is_shown_and_does_nothing() -> None:
    """Markup from a student is text; controls are gone."""
    text = render_html(hostile_summary())
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text) is None


def test_page_says_why_builds_failed() -> None:
    """A table of kinds by arm, and in each trial's details the place, the message and the line."""
    text = render_html(pages()["study"])
    assert "Why builds failed" in text and '<th scope="row">build toml</th>' in text
    assert "<b>syntax</b> <code>rms_norm_cuda/rms_norm.cu:41:13</code> identifier" in text
    assert "Why builds failed" not in render_html(pages()["empty"])


def test_page_says_what_the_numbers_are() -> None:
    """Decision in words, the row, the place, and the limits."""
    text = render_html(summarise(*small_study()))
    assert "<h2>Helps</h2>" in text
    assert "Deployed speed goes from 1.00× to 2.24×, ×2.24 (95% CI ×2.00 to ×4.00, p = 0.031; 6 fam" in text
    assert "sm_90 (NVIDIA H200)" in text
    assert "fewer than 6 families" in text


def test_unmeasured_page_shows_no_figure_for_what_was_not_measured() -> None:
    """Not measured is said in words in table and figure."""
    text = render_html(without_gpu("deployed"))
    assert "<h2>Inconclusive</h2>" in text
    assert "Deployed speed was not measured (no CUDA device)." in text
    assert "deployed not measured (no CUDA device)" in text
    assert "fast_p)</b>" not in text


def test_question_fits_the_run() -> None:
    """The title asks what this run was asked."""

    def asked(summary: Summary) -> str:
        return "".join(piece for piece, _ in question(summary))

    assert (
        asked(pages()["study"]) == "Does cuda-kernel-builder make claude-haiku-4-5 write better GPU kernels?"
    )
    assert asked(pages()["no skill"]) == "How well claude-haiku-4-5 writes GPU kernels"


def test_page_has_the_parts_that_a_study_has() -> None:
    """Headline, heat table, errors, turns, matrix, reading and leaks, each where there is something."""
    repairs, combined = render_html(pages()["repairs"]), render_html(pages()["combinations"])
    assert '<ul class="headlines"><li class="helps">helps: ' in repairs
    assert '<table class="matrix heat" aria-label="Verdicts in both arms">' in repairs
    assert "Errors that the skill removed or introduced" in repairs
    assert "<h3>Turn by turn</h3>" in repairs and "Turn by turn" not in combined
    assert 'id="matrix"' in combined and 'id="matrix"' not in repairs
    assert "cuda-kernel-builder + fast-memory</th>" in combined
    assert "<code>cuda-kernel-builder/SKILL.md</code>" in render_html(pages()["disclosed"])
    leaked = render_html(pages()["leaked"])
    assert "leaked: counted nowhere" in leaked and "98.75% CI, by family" in leaked


def test_the_matrix_leads_where_there_are_many_comparisons() -> None:
    """Six comparisons: before the headlines, once; two: after them, in the page's body."""
    many = render_html(pages()["combinations"])
    assert many.index('id="matrix"') < many.index('<ul class="headlines">') < many.index("<main>")
    few = render_html(summarise(*studies.two_skills()))
    assert few.index('<ul class="headlines">') < few.index("<main>") < few.index('id="matrix"')
    assert many.count('id="matrix"') == few.count('id="matrix"') == 1


def test_a_cell_of_the_matrix_says_once_that_there_is_nothing() -> None:
    """No trial: n/a alone; a lift without spread: the lift, and that it has no interval."""
    text = render_html(summarise(*studies.two_skills()))
    row = text[text.index('<table class="matrix decisions">') :].partition("</table>")[0]
    assert "<b>inconclusive</b> \u00d71.00<small>no interval</small></td>" in row
    assert "<b>inconclusive</b> n/a</td>" in row


@pytest.mark.browser
@pytest.mark.parametrize("name", ["study", "hostile", "repairs"])
def test_browser_renders_without_console_message(tmp_path: Path, name: str) -> None:
    """Chromium accepts the policy, runs the sorting script and reports nothing."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no chromium on PATH")
    (tmp_path / "report.html").write_text(render_html(pages()[name]), encoding="utf-8")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--no-first-run",
    ]
    done = subprocess.run(
        [browser, *flags, "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
         f"file://{tmp_path / 'report.html'}"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    assert '<button type="button">Verdict</button>' in done.stdout
