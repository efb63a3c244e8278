"""Kernels, traces, sanitizers, calls, copies and limits in words, on the card and in the reports."""

from __future__ import annotations

import io

from rich.console import Console

from harness.cli.card import print_card
from harness.outcome import Cause
from harness.records import (
    COPIED,
    BinaryCalls,
    DeviceKernel,
    Evidence,
    Grade,
    Origin,
    Provenance,
    SanitizerRun,
    TrialRecord,
    WorkloadTiming,
)
from harness.records.grade import OperatorCalls, SanitizerFinding, TracedKernel
from harness.records.timing import PhysicalLimit
from harness.report.evidence import all_counts, evidence_lines, limit_line, notable, short_name, spills, total
from harness.report.html import render_html
from harness.report.schema import Summary
from harness.report.summary import summarise
from tests.report import factories as make
from tests.report.test_renderers import RENDERERS

CALLS = BinaryCalls(
    compute=("at::_ops::mm::call", "aten::<b>softmax (by name)"), library=("cublasA", "cublasB", "cublasC")
)
ORIGIN = Origin(
    task="l1/rms_norm", file="rms_norm_cuda/rms_norm.cu", rows=40, longest=613, source_line=9,
    project_file="k/<b>mine.cu", project_line=12,
)  # fmt: skip
FOUND = Provenance(rows=120, common=60, origin=ORIGIN)


def grade(**more: object) -> Grade:
    """A wrong grade with these beside it."""
    found = make.trial("l1/t", make.WITH, Cause.WRONG_VALUES, "wrong", **more).grade  # type: ignore[arg-type]
    assert found is not None
    return found


def with_flags(trial: TrialRecord, *flags: str) -> TrialRecord:
    (turn,) = trial.turns
    assert turn.grade is not None
    flagged = turn.grade.model_copy(update={"flags": flags})
    return trial.model_copy(update={"turns": (turn.model_copy(update={"grade": flagged}),)})


def card(trial: TrialRecord) -> str:
    console = Console(file=io.StringIO(), width=250)
    assert trial.grade is not None and isinstance(console.file, io.StringIO)
    print_card(trial.grade, console, "a project")
    return console.file.getvalue()


# Compiled kernels


def kernel(name: str = "f(float*)", **more: object) -> DeviceKernel:
    values = {"name": name, "architecture": "sm_90a", "registers": 32, "shared_bytes": 0, "stack_bytes": 0}
    return DeviceKernel.model_validate(values | more)


def test_kernels_in_words() -> None:
    """Short names; tensor cores are counted, global accesses by the share of 128 bits; unknown is not 0."""
    assert short_name("void (anonymous namespace)::rotate<float, 4>(float*, long)") == "rotate<float, 4>"
    assert short_name("k<" + "x" * 200 + "...") == "k<" + "x" * 43 + "..."
    assert short_name("a\x1b[31mb(int)") == "ab"
    one = kernel(instructions={"HGMMA": 12, "TMA": 8, "LDG.128": 3, "LDG.32": 1, "FFMA": 9, "all": 33})
    assert notable(one) == "HGMMA 12, TMA 8, LDG.128 75%" and total(one) == "33"
    assert all_counts(one) == "HGMMA 12, TMA 8, FFMA 9, LDG.32 1, LDG.128 3, all 33"
    assert spills(kernel()) == notable(kernel()) == total(kernel()) == "not measured"
    assert spills(kernel(spill_store_bytes=0, spill_load_bytes=0)) == "none"
    assert spills(kernel(spill_store_bytes=8, spill_load_bytes=0)) == "8 / 0 B"


def of_one(trial: TrialRecord) -> Summary:
    """The summary of a run of one trial."""
    tasks = make.families(1)
    return summarise(make.run(tasks), [trial], tasks)


def test_a_card_shows_six_kernels_and_the_page_twelve() -> None:
    """The rest is counted; names are escaped; report.json has all."""
    kernels = tuple(kernel(f"<b>k{i}</b>(int)", instructions={"LDS": i, "all": i}) for i in range(14))
    trial = make.trial("l1/f0t0", make.WITH, build=make.build(kernels=kernels))
    shown, summary = card(trial), of_one(trial)
    assert "k5" in shown and "k6" not in shown and "and 8 shorter ones" in shown
    assert summary.trials[0].kernels == kernels
    page = render_html(summary)
    assert page.count("&lt;b&gt;k") == 12 and "and 2 shorter ones" in page and "<b>k0" not in page


def test_the_card_and_the_page_say_jit() -> None:
    """A project that compiles when it runs is not taken for a compiled one."""
    jit = make.build(jit=True, compiler_s=None, backend="cpu")
    universal, compiled = make.trial("l1/f0t0", make.WITH, build=jit), make.trial("l1/f0t0", make.WITH)
    assert "jit: universal project, compiles when it runs, cpu" in card(universal)
    assert ["<small>jit</small>" in render_html(of_one(one)) for one in (universal, compiled)] == [
        True,
        False,
    ]


# What a library calls, and where a source was copied from


def test_flags_about_calls_stand_before_those_of_the_clock() -> None:
    """With the names behind them; where a task allows calls, nothing is said."""
    trial = make.trial("l1/f0t0", make.WITH, flags=("noisy host",), build=make.build(calls=CALLS))
    summary = of_one(with_flags(trial, *CALLS.flags))
    (row,) = summary.trials
    assert row.flags == ("calls PyTorch operators", "calls a library", "noisy host")
    assert row.calls == CALLS.borrowed
    assert "1 trial flagged for what the built library calls" in summary.warnings
    page = render_html(summary)
    assert "at::_ops::mm::call" in page and "aten::&lt;b&gt;softmax" in page and "<b>softmax" not in page
    flagged = card(with_flags(trial, *CALLS.flags))
    assert "flags: calls PyTorch operators, calls a library (at::_ops::mm::call" in flagged
    allowed = of_one(trial)
    assert (allowed.trials[0].flags, allowed.trials[0].calls) == (("noisy host",), ())
    assert not any("library calls" in warning for warning in allowed.warnings)


def test_copies_are_counted_by_arm_and_name_their_origin() -> None:
    """A line counts the correct ones; a wrong copy is a row of its own and no line."""
    a, b, c = tasks = make.families(3)
    copied = with_flags(make.trial(a, make.WITH, provenance=FOUND, flags=("noisy host",)), COPIED)
    wrong = make.trial(b, make.WITHOUT, Cause.WRONG_VALUES, "w", provenance=FOUND)
    trials = [make.trial(a, make.WITHOUT), with_flags(wrong, COPIED), make.trial(c, make.WITHOUT)]
    trials += [make.trial(task, make.WITH) for task in (b, c)]
    line = f"{COPIED}, of the correct trials: without skill 0 of 2, cuda-kernel-builder 1 of 3"
    summary = summarise(make.run(tasks), [*trials, copied], tasks)
    assert all(line in render(summary) for render in RENDERERS.values())
    row = next(row for row in summary.trials if row.flags == (COPIED, "noisy host"))
    assert row.evidence == (
        "60 of its 120 token n-grams (50%) are in kernels_ref, 40 of them in "
        "l1/rms_norm/rms_norm_cuda/rms_norm.cu; longest match 613 tokens, at k/<b>mine.cu:12 "
        "(line 9 of the source)",
    )
    assert "k/&lt;b&gt;mine.cu:12" in render_html(summary) and "<b>mine" not in render_html(summary)
    rest = summarise(make.run(tasks), trials, tasks)
    assert COPIED not in " ".join(rest.warnings)
    assert [row.flags for row in rest.trials if row.flags] == [(COPIED,)]


def test_a_card_blames_a_copy_on_its_source_and_not_on_the_library() -> None:
    """A few common lines are an idiom and have no line."""
    trial = make.trial("l1/f0t0", make.WITH, provenance=FOUND, build=make.build(calls=CALLS))
    shown = card(with_flags(trial, COPIED))
    assert f"flags: {COPIED}" in shown and "cublasA" not in shown
    few = Provenance(rows=120, common=2, origin=ORIGIN.model_copy(update={"rows": 2, "longest": 16}))
    assert evidence_lines(grade(provenance=few)) == evidence_lines(grade()) == []


# Traces, sanitizers and limits


def test_a_trace_in_words() -> None:
    """Own operators, PyTorch's that compute, the count of the rest, device time, and what Python loaded."""
    evidence = Evidence(
        workload="w",
        dtype="float32",
        operators=(
            OperatorCalls(name="_p::scale", kind="own", calls=1),
            OperatorCalls(name="aten::mm", kind="compute", calls=3),
            OperatorCalls(name="aten::empty", kind="harmless", calls=2),
        ),
        kernels=(
            TracedKernel(name="void fill(float*)", launches=2, device_us=3.0, own=True),
            TracedKernel(name="void sgemm<4>(float*)", launches=1, device_us=7.0, own=False),
            TracedKernel(name="Memset (Device)", launches=1, device_us=0.0, own=None, copy_or_fill=True),
        ),
        traced_right=True,
        loads=tuple(f"ctypes: f{index} of libm.so.6" for index in range(6)),
    )  # fmt: skip
    assert evidence_lines(grade(evidence=evidence)) == [
        "one call on w float32, as claimed by the process: own operators _p::scale; PyTorch operators that "
        "compute 3 x aten::mm; 2 harmless ones",
        "its Python loads code at run time: ctypes: f0 of libm.so.6, ctypes: f1 of libm.so.6, "
        "ctypes: f2 of libm.so.6, ctypes: f3 of libm.so.6, and 2 more",
        "device time: 30% in its own kernels; 3 launches a call, 1 copies and fills; not its own: sgemm<4>",
    ]
    failed = Evidence(workload="w", dtype="float32", operators=None, trouble="the \x1b[31mop raised")
    assert evidence_lines(grade(evidence=failed)) == ["one call on w float32: not traced: the op raised"]


def test_tools_in_words() -> None:
    """Clean, findings with the first one and its kernel; tools with equal outcomes share a line."""
    found = SanitizerFinding(
        message="Invalid __global__ write of size 4 bytes", kernel="fill(float *, long)", count=2
    )
    runs = (
        SanitizerRun(tool="memcheck", status="findings", total=2, findings=(found,)),
        SanitizerRun(tool="racecheck", status="clean", total=0),
        SanitizerRun(tool="initcheck", status="not_measured", message="no CUDA device"),
        SanitizerRun(tool="synccheck", status="not_measured", message="no CUDA device"),
    )
    assert evidence_lines(grade(sanitizers=runs)) == [
        "memcheck: findings: 2, first: Invalid __global__ write of size 4 bytes in fill",
        "racecheck: clean",
        "initcheck, synccheck: not measured: no CUDA device",
    ]


def test_a_limit_in_words() -> None:
    """The fraction by the datasheet and by what was measured, S and flags."""
    limit = PhysicalLimit(
        board="H200 SXM", time_us=50.0, limit_us=60.0, bound_by="memory", fraction=1.2,
        measured_limit_us=40.0, score=1.0, floor_us=30.0, flags=("above the limit",),
    )  # fmt: skip
    timing = WorkloadTiming.model_construct(workload="w", dtype="bfloat16", physics=limit)
    assert limit_line(timing) == (
        "w bfloat16: 120% of the limit (memory, H200 SXM), 80% of what this board was measured to do, "
        "S 1.00, above the limit"
    )
    assert limit_line(timing.model_copy(update={"physics": None})) is None
