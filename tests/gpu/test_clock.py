"""What the outside clock costs on this GPU, step by step, and what it reports for equal contenders."""

from __future__ import annotations

import math
import os
import secrets
import statistics
import time
from contextlib import closing
from ctypes import c_int
from dataclasses import replace
from typing import Any, Final

import pytest
import torch

from harness.device.cuda import Device
from harness.device.machine import judge_and_worker_cpus
from harness.device.telemetry import Conditions
from harness.judge.calibration import ROWS, calibrate, sizes_of
from harness.judge.candidates import reference_source
from harness.judge.check import problems
from harness.judge.distributions import normal
from harness.judge.guarded_buffers import Arena, Layout
from harness.judge.measurement import Session
from harness.judge.shared_memory import CudaTransport
from harness.judge.worker_client import Source
from harness.records import Record
from harness.records.timing import Calibration
from harness.suite.catalogue import LoadedTask
from harness.worker.cuda_driver import Window
from tests.fakes.judge_kernels import CHECKS, Check, run
from tests.gpu.bench import CALLS, FIRST_TASK, Bench, experts, judging
from tools.gpu_results import Fact

_REVEALS, _ROUNDS = 60, 20
_ARENA_BYTES, _SAMPLE = 192 << 20, 4096
_FEW_COLUMNS: Final = 16
_FEW_ROWS: Final = 64
_ASKED, _PAUSE_S = 20, 0.2


class _Here:
    """The judge's context, in the place of a worker's driver."""

    def __init__(self, device: Device) -> None:
        self.call, self.device = device.call, c_int(device.ordinal)


def median_us(benchmark: Any, facts: dict[str, Fact], name: str) -> None:
    """Writes the median round in us; nothing where benchmarks are off."""
    if benchmark.stats is not None:
        facts[name] = benchmark.stats.stats.median * 1e6


@pytest.mark.gpu(estimate_s=20.0, rank=3.5)
@pytest.mark.parametrize("what", ["null", "nothing", "kernel", "kernel_and_wait"])
def test_reveal(what: str, gpu: Bench, facts: dict[str, Fact], benchmark: Any) -> None:
    """A reveal of small memory to the null project, whose tiny kernel zeroes one element, and to calls with
    and without such a kernel."""
    loaded = _few_rows(gpu.headline(experts()[FIRST_TASK]))
    source = Source("null") if what == "null" else Source("project", CALLS, "calls", what)
    with judging(gpu) as judge, judge.workers() as workers, workers.start(source) as worker:
        worker.load()
        (problem,) = problems(loaded, "cuda", timed_only=True, device=worker.transport.device)
        layout = Layout(problem)
        worker.plan(layout)
        found: dict[str, list[float]] = {"outside_us": [], "latency_us": []}
        outputs: list[torch.Tensor] = []

        def reveal() -> None:
            with Arena(layout, [problem.make_inputs()], 0xFF, worker.transport) as arena:
                snapshot, told = worker.call(arena, 1, "on nothing")
                outputs[:] = arena.results(snapshot)[0].outputs
            found["outside_us"].append(told.outside_us)
            found["latency_us"].append(told.latency_us)

        rounds = 4 if gpu.emulated else _REVEALS
        benchmark.pedantic(reveal, rounds=rounds, warmup_rounds=3)
    benchmark.extra_info.update(found)
    for name, values in found.items():
        facts[name] = statistics.median(values)
        facts[f"{name}_spread"] = max(values) - min(values)
    assert min(found["outside_us"]) > 0
    elements = outputs[0].flatten()
    assert bool(elements[1:].isnan().all()), "more than one element was written"
    first = float(elements[0])
    assert math.isnan(first) if what == "nothing" else first == 0.0, "the tiny kernel"


@pytest.mark.gpu(estimate_s=8.0, rank=3.5)
@pytest.mark.parametrize("mib", [2, 192, 1024])
def test_import_and_map(mib: int, gpu: Bench, facts: dict[str, Fact], benchmark: Any) -> None:
    """Importing a descriptor, mapping it and setting access, as a worker does when memory is revealed."""
    with judging(gpu) as judge:
        transport = judge.gpu.transport
        if not isinstance(transport, CudaTransport) or transport.name != "cuda-vmm":
            pytest.skip("this GPU shares memory by IPC")
        mapping = transport.gpu.map(mib << 20)
        descriptor = transport.gpu.export(mapping)
        window = Window(_Here(transport.gpu), mapping.size)  # type: ignore[arg-type]
        try:
            told = {"mapped_bytes": mapping.size}
            show = {"args": (descriptor, told), "teardown": lambda *_: window.hide()}
            benchmark.pedantic(window.show, rounds=_ROUNDS, warmup_rounds=1, **show)
            window.hide()
        finally:
            window.close()
            os.close(descriptor)
            transport.gpu.unmap(mapping)
    median_us(benchmark, facts, "import_and_map_us")


@pytest.mark.gpu(estimate_s=8.0, rank=1.5)
@pytest.mark.parametrize("check", CHECKS)
def test_judge_kernels(check: Check, gpu: Bench) -> None:
    """The judge's own kernels do what they do on the host, bit for bit: gather, fill, copy, flush, draw."""
    with judging(gpu) as judge:
        run(check, judge.gpu.transport.gpu)


@pytest.mark.gpu(estimate_s=8.0, rank=3.5)
@pytest.mark.parametrize("what", ["gather", "draw", "flush"])
def test_judge_kernel_times(what: str, gpu: Bench, facts: dict[str, Fact], benchmark: Any) -> None:
    """A sample of 4,096 positions of 192 MiB, fresh normals for all of it, a flush: until each is over."""
    size = _ARENA_BYTES >> (6 if gpu.emulated else 0)
    with judging(gpu) as judge, closing(judge.gpu.transport.allocate(size)) as memory:
        transport = judge.gpu.transport
        kernels, base, words = transport.kernels, memory.data.data_ptr(), memory.data.view(torch.float32)
        positions = torch.randint(0, words.numel(), (_SAMPLE,), device=transport.device)
        offsets, sample = 4 * positions, torch.empty(_SAMPLE, device=transport.device)
        there = base, offsets.data_ptr(), _SAMPLE, 4, sample.data_ptr()
        steps = {
            "gather": lambda: kernels.gather(*there),
            "draw": lambda: kernels.draw(secrets.token_bytes(32), 1, words.numel(), normal(), base),
            "flush": kernels.flush,
        }

        def step() -> None:
            steps[what]()
            transport.wait()

        benchmark.pedantic(step, rounds=_ROUNDS, warmup_rounds=2)
        kernels.gather(*there)
        assert torch.equal(sample, words[positions])
    median_us(benchmark, facts, f"{what}_us")


@pytest.mark.gpu(estimate_s=15.0, rank=3.5)
def test_stop(gpu: Bench, facts: dict[str, Fact], benchmark: Any) -> None:
    """SIGSTOP until every thread of a worker with a CUDA context stands."""
    loaded = gpu.headline(experts()[FIRST_TASK])
    source = reference_source(loaded)
    with judging(gpu) as judge, judge.workers() as workers, workers.start(source) as worker:
        worker.load()
        (problem,) = problems(loaded, "cuda", timed_only=True, device=worker.transport.device)
        layout = Layout(problem)
        worker.plan(layout)
        with Arena(layout, [problem.make_inputs()], 0xFF, worker.transport) as arena:
            worker.call(arena, 1, "before it is stopped")
        thaw = {"teardown": lambda _: worker.freeze(False)}
        benchmark.pedantic(worker.freeze, args=(True,), rounds=_ROUNDS, warmup_rounds=1, **thaw)
        worker.freeze(False)
        assert worker.changed_settings() == []  # it goes on
    median_us(benchmark, facts, "stop_us")


@pytest.mark.gpu(estimate_s=15.0, rank=3.8)
def test_known_speed(gpu: Bench, facts: dict[str, Fact]) -> None:
    """The known kernel, asked after pauses as before a turn, is within 2 % of its first time."""
    with judging(gpu) as judge:
        speed = judge.gpu.speed
        facts["session_us"] = speed.session_us
        for at in range(_ASKED):
            time.sleep(0.0 if gpu.emulated else _PAUSE_S)
            began = time.monotonic()
            facts[f"us_{at}"] = speed.run().microseconds
            facts[f"after_s_{at}"] = round(time.monotonic() - began, 4)
            facts["doubts"] = int(facts.get("doubts") or 0) + (speed.doubt() is not None)
    assert int(facts["doubts"] or 0) <= _ASKED // 10, "turns would be dropped on a quiet GPU"


@pytest.mark.exhaustive
@pytest.mark.gpu(estimate_s=115.0)
@pytest.mark.parametrize(
    "rows",
    [pytest.param(rows, marks=pytest.mark.gpu(rank=13 if rows > 4096 else 4)) for rows in ROWS["cuda"]],
)
def test_aa(rows: int, gpu: Bench, facts: dict[str, Fact], benchmark: Any) -> None:
    """The null project, and one reference against itself, at one size."""
    found = calibrated(gpu, facts, benchmark, rows, equal=1, known=0)
    assert all(one.ratio.value > 0 for one in found.pairs)


@pytest.mark.gpu(estimate_s=115.0, rank=4.2)
def test_known_ratio(gpu: Bench, facts: dict[str, Fact], benchmark: Any) -> None:
    """A reference that takes half as long as another one reads 1.96x to 2.04x."""
    (pair,) = calibrated(gpu, facts, benchmark, min(ROWS["cuda"]), equal=0, known=1).pairs
    assert pair.truth == 2.0
    assert gpu.emulated or 1.96 <= pair.ratio.value <= 2.04


def calibrated(gpu: Bench, facts: dict[str, Fact], benchmark: Any, rows: int, **pairs: int) -> Calibration:
    """Pairs of our own workers at one size, as `doctor --timing` measures them. On a device every turn has a
    process of its own: a pair starts about 20."""
    loaded = _narrow(experts()[FIRST_TASK]) if gpu.emulated else experts()[FIRST_TASK]
    with judging(gpu) as judge, judge.workers() as workers:
        numbers = workers.numbers
        sizes = sizes_of(loaded, "cuda", judge.gpu.transport, numbers)
        timed = [one for one in sizes if one.workload.dims["rows"] == rows]
        if not timed:
            pytest.skip(f"a batch of {rows} rows does not fit into what one reveal may take")
        conditions, cpus = Conditions(judge.gpu.telemetry), judge_and_worker_cpus()[0]
        session = Session(numbers, judge.gpu.transport, conditions, cpus)
        found: Calibration = benchmark.pedantic(
            calibrate, args=(workers.start, loaded, timed, session), kwargs=pairs
        )
    benchmark.extra_info["calibration"] = found.model_dump(mode="json")
    for place, one in enumerate(found.pairs):
        facts |= scalars(f"pair_{place}_", one) | scalars(f"pair_{place}_ratio_", one.ratio)
    for shake in found.hand_shake:
        facts |= scalars(f"null_{shake.lane}_", shake)
    facts["disturbances"] = "; ".join(found.disturbances) or "-"
    return found


def scalars(prefix: str, record: Record) -> dict[str, Fact]:
    """The fields of a record that are figures or words, with a prefix."""
    fields = record.model_dump(mode="json").items()
    return {prefix + name: value for name, value in fields if isinstance(value, str | int | float | None)}


def _narrow(loaded: LoadedTask) -> LoadedTask:
    """With few columns: many rows take little memory."""
    return _with(loaded, cols=_FEW_COLUMNS)


def _few_rows(loaded: LoadedTask) -> LoadedTask:
    return _with(loaded, rows=_FEW_ROWS)


def _with(loaded: LoadedTask, **dims: int) -> LoadedTask:
    first = next(one for one in loaded.task.workloads_for("cuda") if one.timed)
    few = first.model_copy(update={"dims": {**first.dims, **dims}})
    return replace(loaded, task=loaded.task.model_copy(update={"workloads": (few,)}))
