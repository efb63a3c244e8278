"""Benchmarks run with --benchmark-only (`make bench`); without it they are collected and skipped."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def only_when_asked(request: pytest.FixtureRequest) -> None:
    """Benchmarks take minutes."""
    if not request.config.getoption("--benchmark-only"):
        pytest.skip("a benchmark: make bench")
