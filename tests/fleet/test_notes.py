"""What happened to graders stands in the run and in its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.report.write import report_run
from harness.study.store import RunStore
from tests.report import factories as make


def test_lost_graders_stand_in_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A grader that was left out is named; restarts are counted."""
    tasks = make.families(6)
    store = RunStore.create(tmp_path / "run", make.run(tasks))
    for task in tasks:
        for arm in (make.WITHOUT, make.WITH):
            store.append(make.trial(task, arm, speedup=1.5))
    store.note("GPU GPU-1 is left out: it computed a known kernel wrongly")
    store.note("node a failed and is started again: ended (signal 9)")
    store.note("node a failed and is started again: no answer")
    summary = report_run(RunStore(tmp_path / "run"), json_output=False)
    assert summary.warnings[-2:] == (
        "GPU GPU-1 is left out: it computed a known kernel wrongly",
        "2 times a grader was lost and started again: no trial was scored for it",
    )
    assert "GPU GPU-1 is left out" in (tmp_path / "run" / "report.html").read_text()
