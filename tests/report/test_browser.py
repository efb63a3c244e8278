"""report.html in Chromium: nothing overlaps, is cut, is loaded, or complains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.report import trial_bodies
from harness.report.html import render_html
from tests.report import browser
from tests.report.test_renderers import summaries
from tests.report.transcripts import read_run, run_folder

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    found = browser.chromium()
    if found is None:
        pytest.skip("no chromium on PATH")
    with browser.page(found, tmp_path_factory.mktemp("profile")) as made:
        yield made


def _transcripts(folder: Path, n_tasks: int = 2) -> str:
    return render_html(*read_run(*run_folder(folder, n_tasks, 1)))


@pytest.mark.parametrize("name", ["transcripts", *summaries()])
def test_nothing_overlaps_or_is_cut(page: browser.Page, tmp_path: Path, name: str) -> None:
    """At three widths, light and dark, with everything open: measured in the page, and a screenshot taken."""
    file = tmp_path / "report.html"
    text = _transcripts(tmp_path / "run", 20) if name == "transcripts" else render_html(summaries()[name])
    file.write_text(text, encoding="utf-8")
    for width in (400, 1280, 1920):
        for scheme in ("light", "dark"):
            page.open(file, width, scheme)
            assert page.value(browser.MEASURE) == [], (width, scheme)
            page.value(browser.OPEN_ALL)
            assert page.value(browser.MEASURE) == [], (width, scheme, "open")
            assert page.messages() == []
            page.screenshot(tmp_path / f"{width}-{scheme}.png", height=1200)
            assert (tmp_path / f"{width}-{scheme}.png").stat().st_size > 10_000


def test_measurement_sees_faults(page: browser.Page, tmp_path: Path) -> None:
    """Text beyond the page, over its sibling and cut in its box."""
    file = tmp_path / "bad.html"
    file.write_text(
        "<div style='width:900px'>wide</div><div style='display:flow-root'><p style='height:9px'>one</p>"
        "<p style='margin-top:-30px'>two</p></div><p style='width:9px;overflow:hidden'>Donaudampfschiff</p>"
    )
    page.open(file, 400)
    found = "\n".join(page.value(browser.MEASURE))
    assert "the page is 9" in found and "beyond the page" in found
    assert "overlap: P" in found and "content is wider: P" in found


def test_a_compressed_report_opens(
    page: browser.Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials and prompts are decoded when opened, by links too; without JavaScript a note stands."""
    monkeypatch.setattr(trial_bodies, "PLAIN_BYTES", 0)
    file = tmp_path / "report.html"
    file.write_text(_transcripts(tmp_path / "run"), encoding="utf-8")
    page.open(file, 1280)
    assert page.value("document.querySelectorAll('#trials pre').length") == 0
    for link in ("#t0", "#p1"):
        page.value(f"location.hash = '{link}'")
        page.value("new Promise((done) => setTimeout(done, 100))")
        assert page.value(f"document.querySelector('{link}').open && scrollY > 500")
    page.value(browser.OPEN_ALL)
    assert page.value("document.querySelector('#t0 p.error').textContent").startswith("line 3: syntax")
    assert page.value("document.querySelectorAll('[data-z]').length") == 0 and page.messages() == []
    page.open(file, 400, script=False)
    assert "need JavaScript" in page.value("document.querySelector('#trials noscript').innerText")
    assert all(fault.startswith("scrolls: ") for fault in page.value(browser.MEASURE))


def test_trials_are_sorted_by_a_click(page: browser.Page, tmp_path: Path) -> None:
    """By speedup: unknown last, in both directions."""
    file = tmp_path / "report.html"
    file.write_text(render_html(summaries()["study"]), encoding="utf-8")
    page.open(file, 1280)
    read = "[...document.querySelectorAll('.trial .row')].map((row) => row.children[5].dataset.v)"
    for sign in (1, -1):
        page.value("document.querySelectorAll('.head button')[5].click()")
        shown = page.value(read)
        known = [float(one) for one in shown if one]
        assert known == sorted(known, key=lambda one: sign * one) and "" not in shown[: len(known)]
