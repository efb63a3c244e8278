"""How the experts do: one of them through everything, builds, checks, and timing.

Figures come from the code that grades students; a workload that stands for its task is named.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest

from harness.grading.workers import project_source
from harness.judge.check import problems
from harness.judge.sanitizer import run_tool
from harness.judge.trivial_answers import passing
from harness.outcome import Verdict
from harness.records import CheckResult, Grade, Protocol, Target
from harness.records.grade import SanitizerTool
from harness.suite.catalogue import LoadedTask
from tests.gpu.bench import FIRST_TASK, Bench, experts, judging
from tools.gpu_results import Fact

EXPERTS = experts()
FIRST_OF_FAMILY = set({one.task.family: id for id, one in reversed(EXPERTS.items())}.values())
EMULATED_HERE: Final = {
    *("l1/gemm", "l1/gemm_fp8", "l1/histogram", "l1/cumsum", "l1/transpose", "diffusers/ltx_rms_norm"),
    *("l3/gqa_decode_attention", "l3/selective_scan"),
}
"""Matrix units and TMA, float8, atomics, clusters, shared memory, vectors, shuffles, loops: the others are
exhaustive without a GPU."""
_SOON: Final = ("l1/gemm", "l1/gemm_fp8", "l1/cumsum")
"""Matrix units, TMA and clusters, before the long items of the clock."""
_STAND_IN_BUILDS = 2
SANITIZED: Final[tuple[tuple[SanitizerTool, str, str], ...]] = (
    *(("memcheck", "l1/gemm", "ragged"), ("memcheck", "l3/mlp_swiglu", "ragged")),
    *(("synccheck", "l1/gemm", "ragged"), ("synccheck", "l3/mlp_swiglu", "ragged")),
    *(("racecheck", "l1/group_norm", "large_group"), ("racecheck", "l1/log_softmax", "one_row")),
    *(("racecheck", "l1/topk", "one_sequence"), ("racecheck", "l1/cumsum", "one_row")),
)
"""Workloads of which the first reach TMA and wgmma with ragged edges, and the others clusters of blocks."""
_SANITIZED_HERE = "l1/cumsum"
ON_GPU = "without a GPU it says nothing of an expert; that the code runs is shown by `end_to_end`"


def ranked(first: int, later: int, more: int = 0, soon: float | None = None) -> list[Any]:
    """Every task: FIRST_TASK and one per family at rank `first`, the others at rank `later`; those of
    _SOON at `soon`."""
    ranks = {
        task: (first if task in FIRST_OF_FAMILY else later) + (index + 1) / 100
        for index, task in enumerate(EXPERTS)
    } | {FIRST_TASK: first}
    ranks |= dict.fromkeys(_SOON, soon) if soon is not None else {}
    others = set(EXPERTS) - EMULATED_HERE
    return [
        pytest.param(
            task,
            marks=[pytest.mark.gpu(rank=rank + more / 1000), *[pytest.mark.exhaustive] * (task in others)],
            id=task,
        )
        for task, rank in ranks.items()
    ]


def graded(
    task: str, protocol: Protocol, gpu: Bench, facts: dict[str, Fact], benchmark: Any, *, whole: bool = False
) -> None:
    """The expert through everything, on the headline workload of its task or the `whole` of it."""
    loaded = EXPERTS[task] if whole else gpu.headline(EXPERTS[task])
    with judging(gpu, protocol=protocol) as judge:
        project = judge.expert(loaded)
        gpu.prepare(judge, loaded)
        with judge.grader() as grader:
            grade = benchmark.pedantic(grader.grade, args=(project, loaded))
    benchmark.extra_info["grade"] = grade.model_dump(mode="json")
    grade_facts(grade, facts)


def grade_facts(grade: Grade, facts: dict[str, Fact]) -> None:
    """The figures of the first workload. Fails where the verdict is not `correct`."""
    facts |= {"protocol": grade.protocol, "grade_s": round(grade.wall_s, 2)}
    timing = grade.timing
    if timing is not None and timing.workloads:
        one = timing.workloads[0]
        fastest = min(one.references, key=lambda reference: reference.score_us)
        facts |= {
            "workload": f"{one.workload} {one.dtype}",
            "transport": timing.transport,
            "speedup": timing.speedup.value,
            "low": timing.speedup.low,
            "high": timing.speedup.high,
            "n": f"{timing.speedup.n} {timing.speedup.unit}",
            "student_us": one.student.score_us,
            "fastest_reference": fastest.name,
            "reference_us": fastest.score_us,
            "lane": one.student.lane,
            "clock": one.clock,
            "u_us": one.student.scored_lane.uncertainty_us,
            "L_us": one.student.latency_us,
            "of_speed_of_light": one.speed_of_light,
            "flags": ", ".join(timing.flags) or "-",
        }
    if grade.verdict is not Verdict.CORRECT:
        pytest.fail(f"{grade.verdict} ({grade.finding.cause}): {grade.finding.message}")


def check_facts(found: CheckResult, facts: dict[str, Fact]) -> None:
    """The worst error of a check. Fails where it found something."""
    judged = [one for one in found.workloads if one.worst_error is not None]
    worst = max(judged, key=lambda one: one.worst_error or 0.0, default=None)
    facts |= {
        "protocol": "quick",
        "cases": len(found.workloads),
        "calls": sum(one.calls for one in found.workloads),
        "worst_error": None if worst is None else worst.worst_error,
        "worst_in": None if worst is None else f"{worst.workload} {worst.dtype} {worst.values}",
    }
    if found.finding is not None:
        pytest.fail(f"{found.finding.cause}: {found.finding.message}")


# The estimates are guesses until the first run on a GPU: a worker needs some seconds to import torch and to
# start CUDA, and on a device every turn is in a process of its own.


@pytest.mark.gpu(estimate_s=120.0, rank=2)
@pytest.mark.parametrize("task", [pytest.param(FIRST_TASK, id=FIRST_TASK)])
def test_end_to_end(task: str, gpu: Bench, facts: dict[str, Fact], benchmark: Any) -> None:
    """One expert through build, check and quick timing by the real grader, headline workload only."""
    graded(task, "quick", gpu, facts, benchmark)


@pytest.mark.gpu(estimate_s=240.0, rank=6)
def test_builds(gpu: Bench, facts: dict[str, Fact]) -> None:
    """Every expert compiles here; side by side, so that later items find it done."""
    took_s: dict[str, float] = {}
    every = list(EXPERTS.values())[: _STAND_IN_BUILDS if gpu.emulated else None]
    with judging(gpu) as judge, ThreadPoolExecutor(os.cpu_count() or 1) as pool:

        def attempt(index: int) -> str | None:
            began = time.monotonic()
            try:
                found = judge.built(every[index]).result.architectures
            except pytest.fail.Exception as failure:
                return str(failure)
            took_s[every[index].task.id] = time.monotonic() - began
            return None if all(name.startswith("sm_90") for name in found) else f"built for {found}"

        failures = [said for said in pool.map(attempt, range(len(every))) if said is not None]
    slowest = sorted(took_s, key=lambda task: -took_s[task])[:5]
    facts |= {"built": len(every) - len(failures), "of": len(every)}
    facts["slowest"] = ", ".join(f"{task} {took_s[task]:.0f} s" for task in slowest)
    assert not failures, "; ".join(failures)


@pytest.mark.gpu(estimate_s=60.0)
@pytest.mark.parametrize("task", ranked(7, 8, soon=3.2))
def test_expert(task: str, gpu: Bench, facts: dict[str, Fact]) -> None:
    """The expert is correct on every case and dtype (check stage of quick), and trivial answers fail."""
    loaded = EXPERTS[task]
    with judging(gpu) as judge:
        built = judge.built(loaded)
        check_facts(gpu.checked(judge, built, loaded), facts)
        device = judge.gpu.transport.device
        sizes: Target = "cpu" if gpu.emulated else "cuda"
        problem = problems(loaded, "cuda", timed_only=True, device=device, sizes=sizes)[0]
        passed = passing(problem)
    facts["trivial_answers"] = ", ".join(passed) or "all fail"
    assert not passed, f"{problem.label}: {', '.join(passed)} would pass"


@pytest.mark.gpu(estimate_s=60.0, rank=7.7)
@pytest.mark.parametrize(
    ("tool", "task", "workload"), [pytest.param(*one, id=f"{one[0]}/{one[1]}") for one in SANITIZED]
)
def test_sanitize(tool: SanitizerTool, task: str, workload: str, gpu: Bench, facts: dict[str, Fact]) -> None:
    """compute-sanitizer finds nothing in a call of the expert, on a workload that needs wgmma or clusters."""
    if gpu.emulated and task != _SANITIZED_HERE:
        pytest.skip(f"without a GPU it finds nothing; that the code runs is shown by {_SANITIZED_HERE}")
    loaded = only(EXPERTS[task], workload)
    with judging(gpu) as judge, judge.workers() as workers:
        sanitizer = gpu.sanitizer(judge.toolchain)
        if isinstance(sanitizer, str):
            pytest.skip(sanitizer)
        source = project_source(judge.built(loaded), loaded.task)
        gpu.prepare(judge, loaded)
        (problem,) = problems(loaded, "cuda", device=judge.gpu.transport.device)
        run = run_tool(partial(workers.start, source), sanitizer, tool, problem)
    facts |= {"status": run.status, "total": run.total, "workload": run.workload, "tool_s": run.wall_s}
    if run.status != "clean":
        pytest.fail(f"{run.status}: {run.message or '; '.join(one.message for one in run.findings)}"[:600])


def only(loaded: LoadedTask, workload: str) -> LoadedTask:
    """The task with that workload alone, in the first dtype for CUDA, and no hidden shapes."""
    task = loaded.task
    less = {
        "workloads": tuple(one for one in task.workloads if one.name == workload),
        "dtypes": {**task.dtypes, "cuda": task.dtypes["cuda"][:1]},
        "hidden": None,
    }
    return replace(loaded, task=task.model_copy(update=less))


@pytest.mark.gpu(estimate_s=75.0)
@pytest.mark.parametrize("task", ranked(7, 9, more=1))
def test_time(task: str, gpu: Bench, facts: dict[str, Fact], benchmark: Any) -> None:
    """Quick timing of the expert, headline workload in the first dtype only."""
    if gpu.emulated:
        pytest.skip(ON_GPU)
    graded(task, "quick", gpu, facts, benchmark)


@pytest.mark.gpu(estimate_s=360.0, rank=7.6)
@pytest.mark.parametrize("task", [pytest.param(FIRST_TASK, id=FIRST_TASK)])
def test_whole(task: str, gpu: Bench, facts: dict[str, Fact], benchmark: Any) -> None:
    """All timed workloads in every dtype, as a plain `liftbench grade`: one after the other they fit into the
    device's memory."""
    if gpu.emulated:
        pytest.skip(ON_GPU)
    graded(task, "quick", gpu, facts, benchmark, whole=True)


@pytest.mark.gpu(estimate_s=450.0)
@pytest.mark.parametrize("task", ranked(14, 15))
def test_full(task: str, gpu: Bench, facts: dict[str, Fact], benchmark: Any) -> None:
    """The full protocol for the expert, headline workload in the first dtype only."""
    if gpu.emulated:
        pytest.skip(ON_GPU)
    graded(task, "full", gpu, facts, benchmark)
