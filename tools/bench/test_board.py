"""What a board of many runs costs (`make bench`): reading, ranking and writing every page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pytest_benchmark", reason="needs pytest-benchmark (pip install pytest-benchmark)")

from harness.board.site import build_site
from tools.bench.board_runs import write_runs

RUNS = int(os.environ.get("BOARD_RUNS", "20"))
"""Two entries each; 250 for a board of 500, which takes 600 MB."""


@pytest.mark.parametrize("what", ["first", "again"])
def test_build(what: str, benchmark: Any, tmp_path: Path) -> None:
    """54 tasks, 5 replies per task and arm, without transcripts: every page is below a megabyte. `again`: no
    run has changed, so only tables and the pages of entries are made."""
    folders = write_runs(tmp_path / "runs", RUNS)
    if what == "again":
        build_site(tmp_path / "site", folders)
    (table,) = benchmark.pedantic(lambda: build_site(tmp_path / "site", folders), rounds=1)
    assert len(table.ranking.ranks) == 2 * RUNS
    assert all(page.stat().st_size < 1_000_000 for page in (tmp_path / "site").rglob("*.html"))
