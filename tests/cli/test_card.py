"""The card of a project: failed builds, and the lines under a timing."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from harness.cli.card import print_build, print_card, score_lines
from harness.outcome import Cause
from harness.records import (
    BuildResult,
    ContenderTiming,
    Diagnostic,
    Finding,
    Lane,
    Ratio,
    Spread,
    TimingResult,
    WorkloadTiming,
)
from harness.records.timing import BlockTelemetry, Extent, Secondary
from tests.fakes.trials import build_result, grade

ONE = Diagnostic(
    kind="missing_header",
    message="x.h: No such file or directory",
    file="kernels/a.cu",
    line=3,
    column=10,
    source='  #include "x.h"',
    advice="list it in build.toml",
)


def _printed(build: BuildResult) -> str:
    out = io.StringIO()
    print_build(build, Console(file=out, width=120), "t", None)
    return out.getvalue()


def _card(**options: bool) -> str:
    finding = Finding(cause=Cause.COMPILE_ERROR, message="kernels/a.cu:3:10: error: first\n    3 | context")
    hostile = Diagnostic(kind="syntax", message="[red]no markup\x1b[31m", file="a\nb.cu", source="\x07x")
    others = [ONE.model_copy(update={"file": f"f{n}.cu"}) for n in range(4)]
    build = build_result(finding, diagnostics=(ONE, hostile, *others))
    out = io.StringIO()
    made = grade().model_copy(update={"finding": finding, "build": build})
    print_card(made, Console(file=out, width=120), "t", **options)
    return out.getvalue()


def test_a_refused_build_toml_brings_the_useful_line_first() -> None:
    """Once, with its place; kernel-builder's own message stands whole below, list and all."""
    says = "kernel-builder says: Invalid kernel name `A`. Name must:\n- Start with a lowercase letter"
    finding = Finding(
        cause=Cause.BAD_BUILD_TOML, message=f"build.toml is not valid: line 2: write it small\n{says}"
    )
    one = Diagnostic(
        kind="build_toml", message="write it small", file="build.toml", line=2, source='name = "A"'
    )
    text = _printed(build_result(finding, diagnostics=(one,)))
    assert text.count("write it small") == 1
    order = [
        text.index(part) for part in ("bad_build_toml", "build.toml:2: write", "Name must:", "- Start with")
    ]
    assert order == sorted(order)


def test_warnings_of_the_binding_stand_before_notes() -> None:
    """Each once; a student's text is neither markup nor control codes."""
    warnings = ("a note", "binding: b.cpp:7: [red]`float`\x1b is wrong")
    text = _printed(build_result(warnings=warnings))
    assert text.index("warning: b.cpp:7: [red]`float`") < text.index("note: a note")
    assert text.count("b.cpp:7") == 1 and "\x1b" not in text


def test_the_card_shows_errors_file_by_file() -> None:
    """Place, line and advice instead of raw text; a student's text is neither markup nor control codes."""
    text = _card()
    assert "error: first" in text and "3 | context" not in text
    first = text[text.index("missing_header") :].splitlines()[:3]
    assert [line.strip("│ ") for line in first] == [
        "missing_header  kernels/a.cu:3:10: x.h: No such file or directory",
        '#include "x.h"',
        "help: list it in build.toml",
    ]
    assert "and 2 more" in text
    assert "[red]no markup" in text and "\x1b" not in text and "\x07" not in text
    assert "f3.cu" not in text and "f3.cu" in _card(all_kernels=True)


def contender(name: str, **changes: object) -> ContenderTiming:
    """With one lane."""
    spread = Spread(n=8, mean_us=9.0, median_us=9.0, q1_us=9.0, q3_us=9.0)
    clock: dict[str, Any] = {"outside_us": 9.0, "constant_us": 1.0, "uncertainty_us": 2.0, "matched": True}
    lane = Lane(name="call", calls=8, inside=spread, **clock)
    made = ContenderTiming(name=name, lanes=(lane,), lane="call", score_us=9.0, latency_us=30.0)
    return made.model_copy(update=changes)


def block(number: int, **changes: object) -> BlockTelemetry:
    """One block of which nothing is known but what is given."""
    nothing = {"disturbed": (), "runnable_most": None, "steal_s": None, "cpu_wait_s": None, "cpu_mhz": None}
    return BlockTelemetry.model_validate({"block": number, **nothing, **changes})


def test_conditions_are_told() -> None:
    """How memory was shared, disturbed blocks, stolen time, the GPU's sensors, claims as such, and notes."""
    blocks = (
        block(0, sm_mhz=Extent(low=1700, high=1980), held_down_by=("power cap",), steal_s=0.02),
        block(1, sm_mhz=Extent(low=1650, high=1900), disturbed=("a neighbour",), steal_s=0.01),
    )
    secondary = (Secondary(mode="graph", claimed_us=3.14, calls=64),)
    speedup = Ratio(value=2.0, low=1.9, high=2.1, n=5)
    workload = WorkloadTiming(
        workload="rows",
        dtype="float16",
        student=contender("student", secondary=secondary),
        references=(contender("eager"),),
        speedup=speedup,
        bytes_moved=1,
        telemetry=blocks,
    )
    result = TimingResult(
        workloads=(workload,),
        speedup=speedup,
        transport="cuda-ipc",
        transport_facts={"why": "refused"},
        notes=("no compiler",),
    )
    shared, told, claim, note = score_lines(result)
    assert (shared, note) == ("memory shared by cuda-ipc (why refused)", "note: no compiler")
    assert claim.endswith("student by its own account, never ranked: graph 3.1 us")
    assert told.endswith(
        "2 blocks, 1 of them disturbed, 0.03 s taken by the hypervisor, SM clock 1650 to 1980 MHz, "
        "clocks held down by power cap"
    )
