"""Shared by the sandboxes' tests: starting code in the backend under test."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes.job import Backend

pytest.register_assert_rewrite("tests.sandboxes.behaviours")

from tests.sandboxes.behaviours import Starter


@pytest.fixture
def python() -> str:
    """The interpreter that jobs run: ours, where the backend shows it."""
    return sys.executable


@pytest.fixture
def start(backend: Backend, python: str) -> Iterator[Starter]:
    """Starts Python code in a sandbox of `backend`, a fixture of the test's module; ends it afterwards."""
    starter = Starter(backend, python)
    yield starter
    starter.close()


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files go during the test, empty at first; any user may pass through it."""
    with tempfile.TemporaryDirectory(prefix="liftbench-test-") as name:
        Path(name).chmod(0o711)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)
