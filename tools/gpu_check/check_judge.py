"""Whether the judge works on this GPU, how exact its clock is there, and how the experts do.

Figures come from the code that grades students; a workload that stands for its task is named.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
import torch

from harness.builder.build import Built, build
from harness.device.machine import judge_and_worker_cpus
from harness.device.telemetry import Conditions
from harness.grading.workers import project_source
from harness.judge.calibration import calibrate, sizes_of
from harness.judge.check import check, problems
from harness.judge.guarded_buffers import Arena, Layout
from harness.judge.measurement import Session
from harness.judge.trivial_answers import passing
from harness.judge.verifier import Verifier
from harness.judge.worker_client import Failed, Source, WorkerClient
from harness.judge.worker_reply import Mode
from harness.outcome import Verdict
from harness.records import CheckResult, Grade, Protocol
from harness.suite.catalogue import LoadedTask, expert_project, select_tasks
from tools.gpu_check.bench import BACKENDS, SANDBOX, Bench, Judging, headline, judging
from tools.gpu_check.plugin import gpu
from tools.gpu_check.record import Fact

FIRST_TASK: Final = "l1/softmax"
"""The one expert that goes through everything first."""
ROWS: Final = (64, 4096, 65536)
"""Of l1/softmax in the A/A calibration: below, about and above what launching costs."""
_AA_PROCESSES = 2
_BUILD_WALL_S = 600.0


def tasks() -> dict[str, LoadedTask]:
    """Shipped tasks with an expert project and dtypes for CUDA, by id."""
    return {
        loaded.task.id: loaded
        for loaded in select_tasks([])
        if expert_project(loaded.task) is not None and loaded.task.dtypes.get("cuda")
    }


def transport(backend: str, bench: Bench, facts: dict[str, Fact]) -> None:
    """How device memory gets to a worker in that sandbox, and that it computes there what it should."""
    loaded = headline(tasks()[FIRST_TASK])
    with judging(bench, sandbox=backend, required=True) as judge, judge.workers() as workers:
        facts["torch"] = torch.__version__
        facts |= {name.replace(" ", "_"): value for name, value in judge.gpu.transport.facts().items()}
        source = Source("reference", loaded.reference_path, "liftbench_reference", "reference")
        with workers.start(source) as worker:
            worker.load()
            _reference_calls(worker, loaded, facts)


def _reference_calls(worker: WorkerClient, loaded: LoadedTask, facts: dict[str, Fact]) -> None:
    """Our own reference on secret inputs, in every mode. Fails for a wrong result."""
    (problem,) = problems(loaded, "cuda", timed_only=True, device=worker.transport.device)
    layout, sets = Layout(problem), 2
    worker.plan(layout, sets)
    modes: tuple[Mode, ...] = ("eager", "eager", "queued", "graph")
    for mode in modes:
        inputs = [problem.make_inputs() for _ in range(sets)]
        with Arena(layout, inputs, 0xFF, worker.transport) as arena:
            snapshot, reveal = worker.call(arena, sets, f"on {problem.label}", mode=mode)
        verifier = Verifier(problem)
        for given, result in zip(inputs, arena.results(snapshot), strict=True):
            finding = verifier.integrity(result) or verifier.values(given, result.outputs)
            if finding is not None:
                pytest.fail(f"our own reference, {mode}: {finding.message}")
        facts[f"{mode}_outside_us"] = reveal.outside_us / sets
        facts[f"{mode}_inside_us"] = None if reveal.claim_us is None else reveal.claim_us / sets
        facts["latency_us"] = reveal.latency_us


def graded(task: str, protocol: Protocol, bench: Bench, facts: dict[str, Fact]) -> None:
    """The expert on the headline workload of its task, through everything."""
    loaded = headline(tasks()[task])
    expert = expert_project(loaded.task)
    if expert is None:
        pytest.skip(f"{task} has no expert project")
    with judging(bench, protocol=protocol) as judge, judge.grader() as grader:
        grade_facts(grader.grade(expert, loaded), facts)


def grade_facts(grade: Grade, facts: dict[str, Fact]) -> None:
    facts |= {"protocol": grade.protocol, "wall_s": round(grade.wall_s, 2)}
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


def builds(names: Sequence[str], bench: Bench, facts: dict[str, Fact]) -> None:
    """All experts, compiled side by side: later checks find them in the cache."""
    every = tasks()
    with judging(bench) as judge, ThreadPoolExecutor(os.cpu_count() or 1) as pool:

        def attempt(name: str) -> str | None:
            try:
                _built(judge, every[name])
            except pytest.fail.Exception as failure:
                return str(failure)
            return None

        failures = [said for said in pool.map(attempt, names) if said is not None]
    facts |= {"built": len(names) - len(failures), "of": len(names)}
    if failures:
        pytest.fail("; ".join(failures))


def expert(task: str, bench: Bench, facts: dict[str, Fact]) -> None:
    """Every workload of a task in every dtype, hidden shapes and adversarial values too; and no answer that
    takes no work passes on the headline workload."""
    loaded = tasks()[task]
    with judging(bench) as judge, judge.workers() as workers:
        built = _built(judge, loaded)
        with workers.start(project_source(built, loaded.task)) as worker:
            try:
                worker.load()
                found = check(worker, loaded, "cuda", judge.settings.protocol)
            except Failed as failure:
                pytest.fail(f"{failure.finding.cause}: {failure.finding.message}")
        check_facts(found, judge.gpu.transport.name, facts)
        device = worker.transport.device
        (problem,) = problems(headline(loaded), "cuda", timed_only=True, device=device)
        passed = passing(problem)
        if passed:
            pytest.fail(f"{problem.label}: {', '.join(passed)} would pass")
        facts["trivial_answers"] = "all fail"


def _built(judge: Judging, loaded: LoadedTask) -> Built:
    """The expert, compiled. Skips where nothing can be compiled."""
    expert = expert_project(loaded.task)
    missing = judge.toolchain.missing("cuda")
    if expert is None or missing is not None:
        pytest.skip(f"{loaded.task.id} cannot be built: {missing or 'it has no expert project'}")
    built = build(
        expert,
        "cuda",
        sandbox=judge.sandbox,
        toolchain=judge.toolchain,
        cache=judge.settings.cache / "builds",
        wall_s=_BUILD_WALL_S,
    )
    if built.result.finding is not None:
        pytest.fail(f"{loaded.task.id} was not built: {built.result.finding.message}")
    return built


def check_facts(found: CheckResult, transport: str, facts: dict[str, Fact]) -> None:
    judged = [one for one in found.workloads if one.worst_error is not None]
    worst = max(judged, key=lambda one: one.worst_error or 0.0, default=None)
    facts |= {
        "protocol": "quick",
        "transport": transport,
        "cases": len(found.workloads),
        "calls": sum(one.calls for one in found.workloads),
        "dtypes": " ".join(sorted({one.dtype for one in found.workloads})),
        "worst_error": None if worst is None else worst.worst_error,
        "worst_in": None if worst is None else f"{worst.workload} {worst.dtype} {worst.values}",
    }
    if found.finding is not None:
        pytest.fail(f"{found.finding.cause}: {found.finding.message}")


# --- the checks ---------------------------------------------------------------------------------- The
# estimates are guesses until the first run on a GPU: a worker needs some seconds to import torch and to
# start CUDA, and on a device every turn is in a process of its own.

SHARES = "the judge shares device memory with a worker in {backend}, by descriptor, or by IPC instead"
TIMED = "expert, headline workload in the first dtype only"
each_task = pytest.mark.parametrize("task", sorted(tasks()))


@gpu("transport", SHARES, estimate_s=45.0, rank=1)
@pytest.mark.parametrize("backend", [SANDBOX])
def test_transport(backend: str, bench: Bench, facts: dict[str, Fact]) -> None:
    transport(backend, bench, facts)


@gpu("transport/{backend}", SHARES, estimate_s=45.0, rank=7)
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != SANDBOX])
def test_transport_in(backend: str, bench: Bench, facts: dict[str, Fact]) -> None:
    transport(backend, bench, facts)


@gpu(
    "end_to_end/{task}",
    "one expert through build, check and quick timing by the real grader, headline workload only",
    estimate_s=120.0,
    rank=1,
)
@pytest.mark.parametrize("task", [FIRST_TASK])
def test_end_to_end(task: str, bench: Bench, facts: dict[str, Fact]) -> None:
    """The first task goes through everything before anything else is asked."""
    graded(task, "quick", bench, facts)


@gpu(
    "aa/{rows}",
    f"null project and A/A calibration: {FIRST_TASK}'s reference, {{rows}} rows, against itself",
    estimate_s=90.0,
    rank=1,
)
@pytest.mark.parametrize("rows", ROWS)
def test_aa(rows: int, bench: Bench, facts: dict[str, Fact]) -> None:
    """One reference against itself, and the null project, at one size."""
    loaded = tasks()[FIRST_TASK]
    with judging(bench) as judge, judge.workers() as workers:
        numbers = workers.numbers
        sizes = sizes_of(loaded, "cuda", judge.gpu.transport, numbers)
        timed = [one for one in sizes if one.workload.dims["rows"] == rows]
        if not timed:
            pytest.skip(f"a batch of {rows} rows does not fit into what one reveal may take")
        conditions, cpus = Conditions(judge.gpu.telemetry), judge_and_worker_cpus()[0]
        session = Session(numbers, judge.gpu.transport, conditions, cpus)
        counts = {"processes": _AA_PROCESSES, "blocks": numbers.clean_blocks}
        found = calibrate(workers.start, loaded, timed, session, **counts)
    (size,) = found.sizes
    facts |= {"protocol": "quick", "transport": found.transport}
    for one in size.hand_shake:
        facts |= {
            f"null_{one.lane}_c05_us": one.c05_us,
            f"null_{one.lane}_median_us": one.median_us,
            f"null_{one.lane}_p95_us": one.p95_us,
        }
    facts |= {
        "lane": size.lane,
        "inside_us": size.inside_us,
        "outside_us": size.outside_us,
        "u_us": size.uncertainty_us,
        "L_us": size.latency_us,
        "ratio": size.ratio.value,
        "ratio_low": size.ratio.low,
        "ratio_high": size.ratio.high,
        "outside_ratio": size.outside_ratio.value,
        "blocks": found.blocks,
        "disturbed_blocks": found.disturbed_blocks,
        "disturbances": "; ".join(found.disturbances) or "-",
    }


@gpu(
    "builds",
    "every expert compiles here; side by side, so that later checks find it done",
    estimate_s=240.0,
    rank=3,
)
def test_builds(bench: Bench, facts: dict[str, Fact]) -> None:
    builds(sorted(tasks()), bench, facts)


@gpu(
    "expert/{task}",
    "the expert is correct on every case and dtype (check stage of quick)",
    estimate_s=60.0,
    rank=3,
)
@each_task
def test_expert(task: str, bench: Bench, facts: dict[str, Fact]) -> None:
    expert(task, bench, facts)


@gpu("time/{task}", f"quick timing of the {TIMED}", estimate_s=75.0, rank=5)
@each_task
def test_time(task: str, bench: Bench, facts: dict[str, Fact]) -> None:
    graded(task, "quick", bench, facts)


@gpu("full/{task}", f"the full protocol for the {TIMED}", estimate_s=450.0, rank=8)
@each_task
def test_full(task: str, bench: Bench, facts: dict[str, Fact]) -> None:
    graded(task, "full", bench, facts)
