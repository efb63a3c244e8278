"""Whether the judge works on this GPU, how exact its clock is there, and how the experts do.

Figures come from the code that grades students; a workload that stands for its task is named.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from harness.builder.build import Built, build
from harness.device.machine import judge_and_worker_cpus
from harness.grading.workers import project_source
from harness.outcome import Verdict
from harness.records import CheckResult, Grade, Protocol
from harness.records.gpu_check import Fact
from harness.study.pools import LocalExecutor
from harness.suite.catalogue import LoadedTask, expert_directory, read_project, select_tasks
from tools.gpu_check.item import Bench, FellShort, Item, NotHere
from tools.gpu_check.judging import SANDBOX, Judging, headline, judging
from tools.gpu_check.sandbox_items import BACKENDS

if TYPE_CHECKING:
    import torch

    from harness.judge.worker_client import WorkerClient

FIRST_TASK: Final = "l1/softmax"
"""The one expert that goes through everything before anything else is asked."""
ROWS: Final = (64, 4096, 65536)
"""Of l1/softmax in the A/A calibration: below, about and above what launching costs."""
_AA_PROCESSES = 2
_BUILD_WALL_S = 600.0


def tasks() -> dict[str, LoadedTask]:
    """Shipped tasks with an expert project and dtypes for CUDA, by id."""
    return {
        loaded.task.id: loaded
        for loaded in select_tasks([])
        if expert_directory(loaded.task) is not None and loaded.task.dtypes.get("cuda")
    }


# --- sharing memory ------------------------------------------------------------------------------


def transport(backend: str, bench: Bench) -> dict[str, Fact]:
    """How device memory gets to a worker in that sandbox, and that it computes there what it should."""
    import torch

    from harness.judge.worker_job import Source

    loaded = headline(tasks()[FIRST_TASK])
    with judging(bench, sandbox=backend, required=True) as judge, judge.workers() as workers:
        facts: dict[str, Fact] = {
            "torch": torch.__version__,
            **{name.replace(" ", "_"): value for name, value in judge.gpu.transport.facts().items()},
        }
        source = Source("reference", loaded.reference_path, "liftbench_reference", "reference")
        worker = workers.start(source)
        try:
            worker.load()
            return facts | _reference_calls(worker, loaded)
        finally:
            worker.close()


def _reference_calls(worker: WorkerClient, loaded: LoadedTask) -> dict[str, Fact]:
    """Our own reference on secret inputs, in every mode. Raises FellShort for a wrong result."""
    from harness.judge.arena import Arena, Layout
    from harness.judge.check import problems
    from harness.judge.verifier import Verifier
    from harness.judge.worker_reply import Mode

    device = worker.transport.device
    (problem,) = problems(loaded, "cuda", timed_only=True, device=device)
    layout, sets, facts = Layout(problem), 2, dict[str, Fact]()
    worker.plan(layout, sets)
    modes: tuple[Mode, ...] = ("eager", "eager", "queued", "graph")
    for mode in modes:
        inputs = [problem.make_inputs() for _ in range(sets)]
        arena = Arena(layout, inputs, 0xFF, worker.transport)
        try:
            snapshot, times = worker.call(arena, sets, f"on {problem.label}", mode=mode)
        finally:
            arena.close()
        verifier = Verifier(problem)
        for given, result in zip(inputs, arena.results(snapshot), strict=True):
            finding = verifier.integrity(result) or verifier.values(given, result.outputs)
            if finding is not None:
                raise FellShort(f"our own reference, {mode}: {finding.message}", facts)
        facts[f"{mode}_outside_us"] = times.outside_us / sets
        facts[f"{mode}_inside_us"] = None if times.claim_us is None else times.claim_us / sets
        facts["latency_us"] = times.latency_us
    return facts


# --- grades --------------------------------------------------------------------------------------


def graded(task: str, protocol: Protocol, bench: Bench) -> dict[str, Fact]:
    """The expert on the headline workload of its task, through everything."""
    loaded = headline(tasks()[task])
    directory = expert_directory(loaded.task)
    if directory is None:
        raise NotHere(f"{task} has no expert project")
    with judging(bench, protocol=protocol) as judge, judge.grader() as grader:
        return grade_facts(grader.grade(read_project(directory), loaded))


def grade_facts(grade: Grade) -> dict[str, Fact]:
    """What an expert's grade says. Raises FellShort where it is not correct."""
    facts: dict[str, Fact] = {"protocol": grade.protocol, "wall_s": round(grade.wall_s, 2)}
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
        raise FellShort(f"{grade.verdict} ({grade.finding.cause}): {grade.finding.message}", facts)
    return facts


def builds(names: Sequence[str], bench: Bench) -> dict[str, Fact]:
    """All experts, compiled side by side: later items find them in the cache. Raises FellShort."""
    every = tasks()
    with judging(bench) as judge:
        executor = LocalExecutor(os.cpu_count() or 1)

        def attempt(name: str) -> str | None:
            try:
                _built(judge, every[name])
            except FellShort as failure:
                return str(failure)
            return None

        failures = [said for said in executor.map(attempt, names) if said is not None]
    facts: dict[str, Fact] = {"built": len(names) - len(failures), "of": len(names)}
    if failures:
        raise FellShort("; ".join(failures), facts)
    return facts


def expert(task: str, bench: Bench) -> dict[str, Fact]:
    """Every workload of a task in every dtype, hidden shapes and adversarial values too; and no answer that
    takes no work passes on the headline workload."""
    from harness.judge.check import check
    from harness.judge.worker_client import Failed

    loaded = tasks()[task]
    with judging(bench) as judge, judge.workers() as workers:
        built = _built(judge, loaded)
        worker = workers.start(project_source(built, loaded.task))
        try:
            worker.load()
            found = check(worker, loaded, "cuda", judge.settings.protocol)
        except Failed as failure:
            raise FellShort(f"{failure.finding.cause}: {failure.finding.message}") from failure
        finally:
            worker.close()
        facts = check_facts(found, judge.gpu.transport.name)
        return facts | _trivial_facts(loaded, worker.transport.device, facts)


def _trivial_facts(loaded: LoadedTask, device: torch.device, seen: dict[str, Fact]) -> dict[str, Fact]:
    """Raises FellShort where zeros, an input or the like would pass."""
    from harness.grading.trivial import passing
    from harness.judge.check import problems

    (problem,) = problems(headline(loaded), "cuda", timed_only=True, device=device)
    passed = passing(problem)
    if passed:
        raise FellShort(f"{problem.label}: {', '.join(passed)} would pass", seen)
    return {"trivial_answers": "all fail"}


def _built(judge: Judging, loaded: LoadedTask) -> Built:
    """The expert, compiled. Raises FellShort, or NotHere where nothing can be compiled."""
    directory = expert_directory(loaded.task)
    missing = judge.toolchain.missing("cuda")
    if directory is None or missing is not None:
        raise NotHere(f"{loaded.task.id} cannot be built: {missing or 'it has no expert project'}")
    built = build(
        read_project(directory),
        "cuda",
        sandbox=judge.sandbox,
        toolchain=judge.toolchain,
        cache=judge.settings.cache / "builds",
        wall_s=_BUILD_WALL_S,
    )
    if built.result.finding is not None:
        raise FellShort(f"{loaded.task.id} was not built: {built.result.finding.message}")
    return built


def check_facts(found: CheckResult, transport: str) -> dict[str, Fact]:
    """What a check says. Raises FellShort where something was wrong."""
    judged = [one for one in found.workloads if one.worst_error is not None]
    worst = max(judged, key=lambda one: one.worst_error or 0.0, default=None)
    facts: dict[str, Fact] = {
        "protocol": "quick",
        "transport": transport,
        "cases": len(found.workloads),
        "calls": sum(one.calls for one in found.workloads),
        "dtypes": " ".join(sorted({one.dtype for one in found.workloads})),
        "worst_error": None if worst is None else worst.worst_error,
        "worst_in": None if worst is None else f"{worst.workload} {worst.dtype} {worst.values}",
    }
    if found.finding is not None:
        raise FellShort(f"{found.finding.cause}: {found.finding.message}", facts)
    return facts


# --- the clock -----------------------------------------------------------------------------------


def aa(rows: int, bench: Bench) -> dict[str, Fact]:
    """One reference against itself, and the null project, at one size."""
    from harness.judge.calibration import Setting, calibrate, sizes_of

    loaded = tasks()[FIRST_TASK]
    with judging(bench) as judge, judge.workers() as workers:
        numbers = workers.numbers
        sizes = sizes_of(loaded, "cuda", judge.gpu.transport, numbers)
        timed = [one for one in sizes if one.workload.dims["rows"] == rows]
        if not timed:
            raise NotHere(f"a batch of {rows} rows does not fit into what one reveal may take")
        setting = Setting(
            judge.gpu.transport,
            judge.gpu.telemetry,
            numbers,
            judge_and_worker_cpus()[0],
            processes=_AA_PROCESSES,
            blocks=numbers.clean_blocks,
        )
        found = calibrate(workers.start, loaded, timed, setting)
    (size,) = found.sizes
    facts: dict[str, Fact] = {"protocol": "quick", "transport": found.transport}
    for one in size.hand_shake:
        facts |= {
            f"null_{one.lane}_c05_us": one.c05_us,
            f"null_{one.lane}_median_us": one.median_us,
            f"null_{one.lane}_p95_us": one.p95_us,
        }
    return facts | {
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


# --- the lists -----------------------------------------------------------------------------------
# The estimates are guesses until the first run on a GPU: a worker needs some seconds to import torch and to
# start CUDA, and on a device every turn is in a process of its own.


def _named(backend: str) -> str:
    return "transport" if backend == SANDBOX else f"transport/{backend}"


def transport_items(backends: tuple[str, ...]) -> list[Item]:
    """`transport` for the sandbox that all other items use, `transport/<sandbox>` for the rest."""
    return [
        Item(
            _named(backend),
            f"the judge shares device memory with a worker in {backend}, by descriptor, or by IPC instead",
            45.0,
            partial(transport, backend),
        )
        for backend in backends
    ]


def task_items() -> dict[str, list[Item]]:
    """`builds`, then `expert`, `time` and `full` for every task. Raises UsageError for a broken one."""
    names = sorted(tasks())
    built = "every expert compiles here; side by side, so that later items find it done"
    check = "the expert is correct on every case and dtype (check stage of quick)"
    quick = "quick timing of the expert, headline workload in the first dtype only"
    full = "the full protocol for the expert, headline workload in the first dtype only"
    return {
        "builds": [Item("builds", built, 240.0, partial(builds, names))],
        "expert": [Item(f"expert/{n}", check, 60.0, partial(expert, n)) for n in names],
        "time": [Item(f"time/{n}", quick, 75.0, partial(graded, n, "quick")) for n in names],
        "full": [Item(f"full/{n}", full, 450.0, partial(graded, n, "full")) for n in names],
    }


FIRST: Final = (
    *transport_items((SANDBOX,)),
    Item(
        f"end_to_end/{FIRST_TASK}",
        "one expert through build, check and quick timing by the real grader, headline workload only",
        120.0,
        partial(graded, FIRST_TASK, "quick"),
    ),
    *(
        Item(
            f"aa/{rows}",
            f"null project and A/A calibration: {FIRST_TASK}'s reference, {rows} rows, against itself",
            90.0,
            partial(aa, rows),
        )
        for rows in ROWS
    ),
)
OTHER_SANDBOXES: Final = tuple(transport_items(tuple(name for name in BACKENDS if name != SANDBOX)))
