"""The board of the recorded studies, and how it looks in Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report import browser
from tools.study_board import ROOT, build


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once."""
    made = tmp_path_factory.mktemp("site")
    build(made)
    return made


@pytest.mark.slow
def test_every_recorded_run_and_the_experts_have_a_table(site: Path) -> None:
    """Nothing of it is ranked that no GPU measured; every page is below a megabyte."""
    runs = list((ROOT / "studies").glob("*/run*/trials.jsonl"))
    assert runs and len(list((site / "entries").glob("*.html"))) >= 3
    index = (site / "index.html").read_text()
    assert "CPU target on" in index and "Expert kernels on" in index
    assert all(page.stat().st_size < 1_000_000 for page in site.rglob("*.html"))


@pytest.mark.browser
def test_nothing_overlaps_or_is_cut(site: Path, tmp_path: Path) -> None:
    """Index, tables, an entry and a cell at three widths, light and dark: measured, with screenshots."""
    found = browser.chromium()
    if found is None:
        pytest.skip("no chromium on PATH")
    boards = sorted((site / "boards").glob("*.html"))
    pages = [site / "index.html", *boards, next((site / "entries").glob("*.html"))]
    pages.append(
        next(page for page in sorted((site / "cells").rglob("*.html")) if "both clocks" in page.read_text())
    )
    with browser.page(found, tmp_path / "profile") as page:
        for number, file in enumerate(pages):
            for width in (400, 1280, 1920):
                for scheme in ("light", "dark"):
                    page.open(file, width, scheme)
                    page.value(browser.OPEN_ALL)
                    faults = [one for one in page.value(browser.MEASURE) if not one.startswith("scrolls: ")]
                    assert faults == [] and page.messages() == [], (file, width, scheme)
                    page.screenshot(tmp_path / f"{number}-{width}-{scheme}.png", height=1400)
                    assert (tmp_path / f"{number}-{width}-{scheme}.png").stat().st_size > 10_000
        kernels = next(one for one in boards if "Expert kernels" in one.read_text())
        page.open(kernels, 1280)
        rows = "document.querySelectorAll('#kernel-rows tr:not([hidden])').length"
        every = page.value(rows)
        page.value("document.querySelector('input').value = 'softmax'")
        page.value("document.querySelector('input').dispatchEvent(new Event('input'))")
        assert 0 < page.value(rows) < every
        page.open(kernels, 1280, script=False)
        assert page.value("document.querySelector('.filters').hidden") and page.value(rows) == every
