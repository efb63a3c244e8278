"""Traces, sanitizers and limits in words."""

from __future__ import annotations

from harness.outcome import Cause, Stage, Verdict
from harness.records import (
    Evidence,
    Finding,
    Grade,
    OperatorCalls,
    PhysicalLimit,
    SanitizerFinding,
    SanitizerRun,
    TracedKernel,
    WorkloadTiming,
)
from harness.report.evidence import evidence_lines, limit_line


def grade(evidence: Evidence | None = None, *runs: SanitizerRun) -> Grade:
    """A grade with these beside it."""
    return Grade(
        task="l1/t",
        task_digest="d",
        project="p",
        target="cuda",
        protocol="full",
        verdict=Verdict.WRONG_RESULT,
        stage=Stage.CHECK,
        finding=Finding(cause=Cause.WRONG_VALUES, message="wrong"),
        evidence=evidence,
        sanitizers=runs,
        sandbox="local",
        machine="m",
        wall_s=1.0,
    )


def operator(name: str, kind: str, calls: int = 1) -> OperatorCalls:
    """One row."""
    return OperatorCalls.model_validate({"name": name, "calls": calls, "kind": kind})


def test_nothing_was_looked_at() -> None:
    """A grade without a trace and without tools has no lines."""
    assert evidence_lines(grade()) == []


def test_a_trace_says_that_the_process_says_so() -> None:
    """Own operators, PyTorch's that compute, the count of the rest; device time beside them."""
    evidence = Evidence(
        workload="w",
        dtype="float32",
        operators=(
            operator("_p::scale", "own"),
            operator("aten::mm", "compute", 3),
            operator("aten::empty", "harmless", 2),
        ),
        kernels=(
            TracedKernel(name="void fill(float*)", launches=2, device_us=3.0, own=True),
            TracedKernel(name="void sgemm<4>(float*)", launches=1, device_us=7.0, own=False),
            TracedKernel(name="Memset (Device)", launches=1, device_us=0.0, own=None, copy_or_fill=True),
        ),
        traced_right=True,
    )  # fmt: skip
    assert evidence_lines(grade(evidence)) == [
        "one call on w float32, as the process says: own operators _p::scale; PyTorch operators that compute "
        "3 x aten::mm; 2 harmless ones",
        "device time: 30% in its own kernels; 3 launches a call, 1 copies and fills; not its own: sgemm<4>",
    ]


def test_what_python_loaded_is_named() -> None:
    """The first ones, and how many more."""
    loads = tuple(f"ctypes: f{index} of libm.so.6" for index in range(6))
    evidence = Evidence(workload="w", dtype="float32", operators=(), loads=loads)
    assert evidence_lines(grade(evidence))[1] == (
        "its Python loads code at run time: ctypes: f0 of libm.so.6, ctypes: f1 of libm.so.6, "
        "ctypes: f2 of libm.so.6, ctypes: f3 of libm.so.6, and 2 more"
    )


def test_what_was_not_traced_says_why() -> None:
    """The reason stands there, without what could drive a terminal."""
    evidence = Evidence(workload="w", dtype="float32", operators=None, trouble="the \x1b[31mop raised")
    assert evidence_lines(grade(evidence)) == ["one call on w float32: not traced: the op raised"]


def test_tools_in_words() -> None:
    """Clean, findings with the first one and its kernel, and why one is missing."""
    found = SanitizerFinding(
        message="Invalid __global__ write of size 4 bytes", kernel="fill(float *, long)", count=2
    )
    runs = (
        SanitizerRun(tool="memcheck", status="findings", total=2, findings=(found,)),
        SanitizerRun(tool="racecheck", status="clean", total=0),
        SanitizerRun(tool="initcheck", status="timed_out", message="no end within 120 s"),
        SanitizerRun(tool="synccheck", status="not_present", message="compute-sanitizer is not there"),
    )  # fmt: skip
    assert evidence_lines(grade(None, *runs)) == [
        "memcheck: findings: 2, first: Invalid __global__ write of size 4 bytes in fill",
        "racecheck: clean",
        "initcheck: timed out: no end within 120 s",
        "synccheck: not present: compute-sanitizer is not there",
    ]


def test_tools_that_came_to_the_same_stand_in_one_line() -> None:
    """Four tools without a GPU are one line with one reason."""
    runs = [
        SanitizerRun.model_validate({"tool": tool, "status": "not_measured", "message": "no CUDA device"})
        for tool in ("memcheck", "racecheck")
    ]
    assert evidence_lines(grade(None, *runs)) == ["memcheck, racecheck: not measured: no CUDA device"]


def test_a_limit_in_words() -> None:
    """The fraction by the datasheet, the one by what was measured where that is known, S and flags."""
    limit = PhysicalLimit(
        board="H200 SXM",
        time_us=50.0,
        limit_us=60.0,
        bound_by="memory",
        fraction=1.2,
        measured_limit_us=40.0,
        score=1.0,
        floor_us=30.0,
        flags=("above the limit",),
    )
    timing = WorkloadTiming.model_construct(workload="w", dtype="bfloat16", physics=limit)
    assert limit_line(timing) == (
        "w bfloat16: 120% of the limit (memory, H200 SXM), "
        "80% of what this board was measured to do, S 1.00, "
        "above the limit"
    )
    assert limit_line(timing.model_copy(update={"physics": None})) is None
