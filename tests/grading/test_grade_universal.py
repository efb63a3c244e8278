"""Universal projects through the whole grade, in the role that may compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.grading.grade import Grader
from harness.judge.worker_client import Source, WorkerClient, WorkerPlace
from harness.outcome import Stage, Verdict
from tests.fakes.overlays import throw_away_task
from tests.fakes.sandbox import FakeSandbox, exit_facts
from tests.fakes.universal import universal

SCALE = throw_away_task("scale")

# What Triton does on its first call: C source into the cache, a compiler, dlopen of the result.
_COMPILES_AT_RUN_TIME = """\
import ctypes, os, pathlib, subprocess
cache = pathlib.Path(os.environ["TRITON_CACHE_DIR"])
cache.mkdir(parents=True)
source = cache / "launcher.c"
source.write_text("double factor(void) { return 1.0; }")
subprocess.run(["gcc", "-O2", "-shared", "-fPIC", source, "-o", cache / "launcher.so"], check=True)
library = ctypes.CDLL(str(cache / "launcher.so"))
library.factor.restype = ctypes.c_double
FACTOR = library.factor()
"""


@pytest.mark.slow
def test_a_universal_project_that_compiles_at_run_time_is_graded_for_real(grader: Grader) -> None:
    """As Triton would: gcc and a cache are there; nothing was built before; checked, timed and correct."""
    grade = grader.grade(universal({"torch-ext/scale/numbers.py": _COMPILES_AT_RUN_TIME}), SCALE)
    assert (grade.verdict, grade.stage) == (Verdict.CORRECT, Stage.TIME), grade.finding
    assert grade.build is not None and grade.build.jit and grade.build.compiler_s is None
    assert grade.timing is not None and grade.timing.speedup.value > 0


@pytest.mark.parametrize(("jit", "role"), [(True, "run_jit"), (False, "run")])
def test_only_universal_projects_get_the_role_that_compiles(jit: bool, role: str, tmp_path: Path) -> None:
    """A compiled project's worker has no compiler cache, a universal one's has its own in scratch."""
    package = tmp_path / "torch-cpu" / "__init__.py"
    package.parent.mkdir()
    package.touch()
    sandbox = FakeSandbox(exit_facts("ok"))
    inputs = Source("project", package, "scale", "scale", jit=jit)
    WorkerClient(inputs, sandbox, WorkerPlace((tmp_path,)), wall_s=1.0).close()
    job = sandbox.jobs[0]
    assert job.role == role
    assert (job.environment.get("TRITON_CACHE_DIR") == "{scratch}/jit/triton") is jit
