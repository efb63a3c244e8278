"""What an eval says while it runs, where nobody has a terminal."""

from __future__ import annotations

import pytest

from harness.cli.progress import EvalProgress
from harness.outcome import Cause
from harness.records import InfraFailure, TrialKey, TrialRecord

KEY = TrialKey(task="l1/rms_norm", model="fake/one", arm="without_skill", repeat=1)


def test_a_trial_that_is_lost_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    """The line of a trial that was lost to infrastructure has the last reason, in one line and cleaned."""
    reasons = ("a first one", "the Docker engine is gone:\x1b[2J start it\nand more")
    trial = TrialRecord(
        key=KEY,
        generation_key="0" * 64,
        grading_key=None,
        turns=(),
        failures=tuple(
            InfraFailure(cause=Cause.SANDBOX, message=m, at="2026-01-01T00:00:00+00:00") for m in reasons
        ),
        infra=True,
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:00:01+00:00",
    )
    with EvalProgress(8, 2) as progress:
        progress.finished(trial)
    line = capsys.readouterr().err
    assert line.startswith("[3/8] l1/rms_norm without_skill #1 (fake/one): infra (the Docker engine is gone:")
    assert "start it)" in line and "\x1b" not in line and "and more" not in line
