"""Retries wait; tests of studies do not."""

import pytest


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.study.run.time.sleep", lambda seconds: None)
