"""What the harness itself costs (`make bench`).

Each figure is printed beside one that it can be compared with in the same run: machines are noisy.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")
pytest.importorskip("pytest_benchmark", reason="needs pytest-benchmark (pip install pytest-benchmark)")

from harness.builder.toolchain import find_toolchain
from harness.device.machine import machine_facts
from harness.grading.grade import Grader
from harness.grading.workers import GradeSettings
from harness.outcome import Verdict
from harness.suite.catalogue import expert_project, select_tasks
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def grader(tmp_path: Path) -> Iterator[Grader]:
    toolchain = find_toolchain()
    settings = GradeSettings(target="cpu", protocol="quick", cache=tmp_path)
    made = Grader(settings, SandboxPool(LocalBackend()), toolchain, machine_facts(toolchain))
    yield made
    made.close()


@pytest.mark.parametrize("cached", [False, True], ids=["from scratch", "on a cached build"])
def test_grade(benchmark: Any, grader: Grader, cached: bool) -> None:
    """A whole grade, from the request to the verdict; where cached, references are warm too."""
    [loaded] = select_tasks(["l1/rms_norm"])
    project = expert_project(loaded.task)
    assert project is not None
    if cached:
        grader.grade(project, loaded)
    grade = benchmark.pedantic(lambda: grader.grade(project, loaded), rounds=3 if cached else 1)
    assert grade.verdict is Verdict.CORRECT


@pytest.mark.parametrize(
    "words", [["-m", "harness.cli.main", "--help"], ["-c", "pass"]], ids=["help", "bare"]
)
def test_help(benchmark: Any, words: list[str]) -> None:
    """`liftbench --help`, a whole process, and an empty Python process to compare it with."""
    command = [sys.executable, *words]
    benchmark.pedantic(lambda: subprocess.run(command, cwd=ROOT, capture_output=True, check=True), rounds=10)
