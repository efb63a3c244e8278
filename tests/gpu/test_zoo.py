"""The zoo's projects for a GPU. A row passes only for its own reason."""

from __future__ import annotations

import os

import pytest

from harness.builder.toolchain import find_toolchain
from harness.device.machine import machine_facts
from harness.errors import DeviceLost
from harness.grading.grade import Grader
from harness.grading.workers import GradeSettings
from sandboxes.registry import open_sandbox
from tests.fakes.zoo import HonestScores, Row, Seen, row, row_names, try_emulated, try_row
from tests.gpu.bench import SANDBOX, Bench, judging
from tools.gpu_results import Fact

_WORKER_S, _CALL_S = 90.0, 8.0
"""The projects are tiny; a worker that starts CUDA and fills the device's memory takes seconds."""
_ESTIMATE_S = {"cheated": 150.0, "correct": 120.0}
"""By verdict, else 60: two more processes confirm a cheat, and a score is compared with the honest base's."""
ROWS = sorted((r for r in map(row, row_names()) if r.gpu), key=lambda r: (r.kind != "hostile", r.name))
FIRST = set({(r.kind, r.verdict, r.emulated and r.emulated.outcome): r.name for r in reversed(ROWS)}.values())
"""The others are exhaustive without a GPU."""


def tried(wanted: Row, gpu: Bench) -> Seen:
    """The row on the GPU; without one on the emulated GPU, where it gives what emulated.toml says."""
    if gpu.emulated:
        toolchain, sandbox = find_toolchain(os.environ), open_sandbox(SANDBOX)
        missing = toolchain.missing("cuda")
        if missing is not None:
            pytest.skip(f"cannot build for sm_90: {missing}")
        settings = GradeSettings("cuda", "quick", gpu.cache, timed=False, emulate=True)
        grader = Grader(settings, sandbox, toolchain, machine_facts(toolchain))
        try:
            return try_emulated(wanted, grader)
        finally:
            grader.close()
            sandbox.close()
    with judging(gpu, worker_wall_s=_WORKER_S, call_wall_s=_CALL_S) as judge, judge.grader() as grader:
        try:
            return try_row(wanted, grader, HonestScores(grader))
        except DeviceLost:
            # As in a run: the trial is repeated once, and a second loss is the project's own.
            return try_row(wanted, grader, HonestScores(grader))


@pytest.mark.gpu(rank=10)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            one.name,
            marks=[
                pytest.mark.gpu(estimate_s=_ESTIMATE_S.get(one.verdict.value, 60.0)),
                *[pytest.mark.exhaustive] * (one.name not in FIRST),
            ],
        )
        for one in ROWS
    ],
)
def test_zoo(name: str, gpu: Bench, facts: dict[str, Fact]) -> None:
    """The row's verdict, cause and flags are those of its zoo.toml."""
    seen = tried(row(name), gpu)
    facts |= {
        "protocol": seen.grade.protocol,
        "why": seen.row.why,
        "verdict": seen.grade.verdict.value,
        "cause": seen.grade.finding.cause.value,
        "said": seen.grade.finding.message[:200],
        "gain": seen.gain,
        "grade_s": round(seen.seconds, 1),
    }
    assert not seen.wrong and not seen.open, "; ".join((*seen.wrong, *seen.open))
