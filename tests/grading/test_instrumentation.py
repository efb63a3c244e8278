"""What is looked at beside check and time, and what follows from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.grading.grade import Grader
from harness.grading.instrumentation import Seen, flags_beside, unsanitized
from harness.grading.workers import GradeSettings
from harness.outcome import Cause, Stage, Verdict
from harness.records import BinaryCalls, Evidence, Finding, SanitizerRun
from harness.records.grade import OperatorCalls, SanitizerFinding
from tests.fakes.overlays import ZOO, overlaid, throw_away_task, zoo_project
from tests.report import factories as make

SCALE = throw_away_task("scale")
FORBIDS = replace(SCALE, task=SCALE.task.model_copy(update={"library_calls": "forbid"}))


@pytest.mark.slow
def test_pytorch_in_python_is_refused_where_the_task_forbids_it(grader: Grader) -> None:
    """The library's symbols are innocent; the traced call is not, and its operator is named."""
    grade = grader.grade(zoo_project("torch_in_python"), FORBIDS)
    assert (grade.verdict, grade.stage) == (Verdict.LOAD_FAILED, Stage.CHECK), grade.finding
    assert grade.finding.cause is Cause.LIBRARY_CALLS
    assert "aten::mul" in grade.finding.message
    assert grade.build is not None and grade.build.calls is not None and grade.build.calls.flags == ()
    assert (grade.flags, grade.timing) == (("dispatches PyTorch operators",), None)


@pytest.mark.slow
def test_own_work_passes_where_the_task_forbids_calls(grader: Grader) -> None:
    """A project that computes with its own operator is traced, unflagged, and timed."""
    grade = grader.grade(zoo_project("correct"), FORBIDS)
    assert grade.verdict is Verdict.CORRECT, grade.finding
    assert grade.evidence is not None
    assert [o.kind for o in grade.evidence.operators or ()] == ["own"]
    assert (grade.evidence.traced_right, grade.evidence.computing, grade.flags_of_work) == (True, (), ())


def test_flags_of_all_kinds_stand_together() -> None:
    """Of calls, the trace and the tools, in that order, each once; without any there is none."""
    operators = (OperatorCalls(name="aten::mm", calls=1, kind="compute"),)
    evidence = Evidence(workload="w", dtype="float32", operators=operators, loads=("ctypes: libm.so.6",))
    calls = BinaryCalls(system=("dlopen",))
    build = make.build(calls=calls)
    found = SanitizerRun(
        tool="racecheck", status="findings", total=1, findings=(SanitizerFinding(message="Race reported"),)
    )
    clean = SanitizerRun(tool="memcheck", status="clean", total=0)
    seen = Seen(evidence, (clean, found))
    flags = ("loads code at run time", "dispatches PyTorch operators", "racecheck findings")
    assert flags_beside(build, SCALE.task, seen, None) == flags
    assert flags_beside(None, SCALE.task, Seen(), None) == ()


def test_tools_that_were_not_reached_say_so() -> None:
    """Asked for, they stand in every record with a reason; not asked for, there is nothing."""
    ended = Finding(cause=Cause.NO_CUDA_DEVICE, message="no CUDA device: built for sm_90, not run")
    settings = GradeSettings(target="cuda", protocol="quick", cache=Path("unused"), sanitize=True)
    runs = unsanitized(settings, ended)
    assert [r.tool for r in runs] == ["memcheck", "racecheck", "initcheck", "synccheck"]
    assert {(r.status, r.message) for r in runs} == {("not_measured", f"not reached: {ended.message}")}
    assert unsanitized(replace(settings, sanitize=False), ended) == ()


@pytest.mark.slow
def test_quick_traces_python_that_could_do_the_work(grader: Grader) -> None:
    """What Python calls of PyTorch or NumPy is flagged; Python that only passes calls on is not traced."""
    assert grader.grade(zoo_project("correct"), SCALE).evidence is None
    grade = grader.grade(zoo_project("torch_in_python"), SCALE)
    assert grade.verdict is Verdict.CORRECT
    assert "dispatches PyTorch operators" in grade.flags_of_work
    assert grade.timing is not None
    assert set(grade.timing.flags) <= set(grade.flags)
    numpy = {"torch-ext/scale/__init__.py": NUMPY}
    grade = grader.grade(overlaid(ZOO / "base", numpy), SCALE)
    assert (grade.verdict, grade.flags_of_work) == (Verdict.CORRECT, ("imports NumPy",))


NUMPY = """from ._ops import ops

import numpy


def scale(out, x, *, alpha):
    numpy.multiply(x.numpy(), numpy.float32(alpha), out=out.numpy())
"""
