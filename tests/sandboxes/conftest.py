"""Shared by the sandboxes' tests: starting code in the backend under test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from sandboxes.cage import Backend

pytest.register_assert_rewrite("tests.sandboxes.behaviours")

from tests.sandboxes.behaviours import Starter


@pytest.fixture
def python() -> str:
    """The interpreter that jobs run: ours, where the backend shows it."""
    return sys.executable


@pytest.fixture
def start(backend: Backend, python: str) -> Iterator[Starter]:
    """Starts Python code in a sandbox of `backend`, a fixture of the test's module; ends it after the test."""
    starter = Starter(backend, python)
    yield starter
    starter.close()
