"""All problems of the tests, judged once for the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.kernelbench.admission import Admission, admit_all
from harness.kernelbench.conversion import Converted
from harness.kernelbench.problems import find_problems
from tests.fakes.kernelbench import write_checkout


@pytest.fixture(scope="session")
def bench_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where conversions are kept."""
    return tmp_path_factory.mktemp("kernelbench-cache")


@pytest.fixture(scope="session")
def bench_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every problem of tests/fakes/kernelbench.py."""
    return write_checkout(tmp_path_factory.mktemp("kernelbench"))


@pytest.fixture(scope="session")
def judged(bench_checkout: Path, bench_cache: Path) -> dict[str, tuple[Converted, Admission]]:
    """By the number of the problem."""
    problems = find_problems(f"kernelbench:{bench_checkout}")
    found = admit_all(problems, "cpu", bench_cache)
    return {one.problem.path.stem.partition("_")[0]: (one, admission) for one, admission in found}
