"""What an eval says while it runs."""

from __future__ import annotations

import io
import re

import pytest

from harness.cli.progress import EvalProgress
from harness.outcome import Cause
from tests.report.factories import OTHER, WITH, WITHOUT, trial


class Clock:
    """A clock that is set by hand."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_finished_trial_has_verdict_speedup_elapsed_and_eta(capsys: pytest.CaptureFixture[str]) -> None:
    """Plain lines without a terminal; an estimate from the third finished trial on, if any is left."""
    clock = Clock()
    with EvalProgress(20, 10, clock=clock) as progress:
        progress.stage(trial("l1/rms_norm", WITH).key, "build")
        for task, arm, cause, took_s in (
            ("l1/rms_norm", WITHOUT, Cause.COMPILE_ERROR, 7),
            ("l1/rms_norm", WITH, Cause.PASSED, 53),
            ("l1/softmax", WITH, Cause.WRONG_VALUES, 30),
        ):
            clock.now_s += took_s
            progress.finished(trial(task, arm, cause, speedup=1.4249, repeat=2))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "[11/20] l1/rms_norm without_skill #2: build_failed, 0:07",
        "[12/20] l1/rms_norm with_skill #2: correct 1.42x, 1:00",
        "[13/20] l1/softmax with_skill #2: wrong_result, 1:30, ETA ~3:30",
    ]
    with EvalProgress(4, 0, models=2, clock=clock) as progress:  # each line names its model
        for repeat in range(4):
            clock.now_s += 1000
            progress.finished(trial("l1/softmax", WITHOUT, model=OTHER, repeat=repeat))
    lines = capsys.readouterr().err.splitlines()
    assert lines[2] == f"[3/4] l1/softmax without_skill #2 {OTHER}: correct 1.00x, 50:00, ETA ~16:40"
    assert lines[3] == f"[4/4] l1/softmax without_skill #3 {OTHER}: correct 1.00x, 1:06:40"


def test_a_terminal_gets_a_status_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the lines nor the status below them are wider than 80 columns."""
    sink = io.StringIO()
    monkeypatch.setattr("sys.stderr", sink)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with EvalProgress(60, 0) as progress:
        for repeat, cause in zip(range(12), Cause, strict=False):
            for stage in ("ask", "build", "check", "time"):
                progress.stage(trial("l2/rotary_embedding", WITH, repeat=repeat).key, stage)
                progress.stage(trial("l2/rotary_embedding", WITH, repeat=30 + repeat).key, stage)
            progress.finished(trial("l2/rotary_embedding", WITH, cause, repeat=repeat))
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sink.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", shown) if line.strip()]
    assert sum(line.startswith("[") for line in lines) == 12 < len(lines)
    assert [line for line in lines if len(line) > 80] == []


def test_a_trial_that_is_lost_says_why_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The last reason in one line and cleaned; where it is the same again, how often it came."""
    message = "the Docker engine is gone:\x1b[2J start it\nand more"
    with EvalProgress(8, 2) as progress:
        for repeat in range(3):
            progress.finished(trial("l1/softmax", WITH, Cause.SANDBOX, message, failures=1, repeat=repeat))
    lines = capsys.readouterr().err.splitlines()
    assert "#0: infra, 0:00 (the Docker engine is gone: start it)" in lines[0]
    assert lines[2].endswith("(for the same reason: 3)")
    assert "\x1b" not in "".join(lines) and "and more" not in "".join(lines)
