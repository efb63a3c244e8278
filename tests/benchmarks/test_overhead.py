"""What the harness itself costs (`make bench`).

Each figure is printed beside one that it can be compared with in the same run: machines are noisy.
Not part of `make test`: pytest collects it, and skips it, unless --benchmark-only is given.
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
from harness.records import Project
from harness.suite.catalogue import LoadedTask, expert_directory, read_project, select_tasks
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def loaded() -> LoadedTask:
    return select_tasks(["l1/rms_norm"])[0]


@pytest.fixture(scope="module")
def project(loaded: LoadedTask) -> Project:
    directory = expert_directory(loaded.task)
    assert directory is not None
    return read_project(directory)


@pytest.fixture
def grader(tmp_path: Path) -> Iterator[Grader]:
    toolchain = find_toolchain()
    settings = GradeSettings(target="cpu", protocol="quick", cache=tmp_path)
    made = Grader(settings, SandboxPool(LocalBackend()), toolchain, machine_facts(toolchain))
    yield made
    made.close()


def test_grade_from_scratch(benchmark: Any, grader: Grader, loaded: LoadedTask, project: Project) -> None:
    """A whole grade with an empty cache; extra_info has the compilers' share of it."""
    grades = []

    def once() -> None:
        grades.append(grader.grade(project, loaded))

    benchmark.pedantic(once, rounds=1, iterations=1)
    grade = grades[0]
    assert grade.verdict is Verdict.CORRECT
    assert grade.build is not None
    compiler = grade.build.compiler_s or 0.0
    benchmark.extra_info["compiler_s"] = compiler
    benchmark.extra_info["harness_s"] = grade.wall_s - compiler


def test_grade_on_a_cached_build(
    benchmark: Any, grader: Grader, loaded: LoadedTask, project: Project
) -> None:
    """From the request to the verdict when the build is cached and references are warm."""
    grader.grade(project, loaded)
    benchmark.pedantic(lambda: grader.grade(project, loaded), rounds=3, iterations=1)


def test_help(benchmark: Any) -> None:
    """`liftbench --help`, a whole process."""
    command = [sys.executable, "-m", "harness.cli.main", "--help"]
    benchmark.pedantic(lambda: subprocess.run(command, cwd=ROOT, capture_output=True, check=True), rounds=10)


def test_bare_python(benchmark: Any) -> None:
    """An empty Python process: what --help is to be compared with."""
    command = [sys.executable, "-c", "pass"]
    benchmark.pedantic(lambda: subprocess.run(command, capture_output=True, check=True), rounds=10)
