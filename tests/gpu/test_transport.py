"""How device memory gets to a worker, and that a reference computes there what it should."""

from __future__ import annotations

import time

import pytest
import torch

from harness.errors import DeviceError, SandboxError
from harness.judge.candidates import reference_source
from harness.judge.check import problems
from harness.judge.guarded_buffers import Arena, Layout
from harness.judge.verifier import Verifier
from harness.judge.worker_client import Source, WorkerClient, Wrapper
from harness.judge.worker_reply import Mode
from harness.suite.catalogue import LoadedTask
from tests.gpu.bench import CALLS, FIRST_TASK, OTHERS, SANDBOX, Bench, experts, judging
from tools.gpu_results import Fact

_MODES: tuple[Mode, ...] = ("eager", "eager", "queued", "graph")


@pytest.mark.gpu(estimate_s=45.0)
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(SANDBOX, marks=pytest.mark.gpu(rank=1, essential=True)),
        *(pytest.param(name, marks=pytest.mark.gpu(rank=12)) for name in OTHERS),
    ],
)
def test_transport(backend: str, gpu: Bench, facts: dict[str, Fact]) -> None:
    """A worker maps the judge's device memory, and the reference is right there in every mode."""
    loaded = gpu.headline(experts()[FIRST_TASK])
    with judging(gpu, sandbox=backend) as judge, judge.workers() as workers:
        facts["torch"] = torch.__version__
        facts |= {name.replace(" ", "_"): value for name, value in judge.gpu.transport.facts().items()}
        source = reference_source(loaded)
        marks = [time.monotonic()]
        with workers.start(source) as worker:
            marks.append(time.monotonic())
            worker.load()
            marks.append(time.monotonic())
            facts |= {"start_s": round(marks[1] - marks[0], 3), "load_s": round(marks[2] - marks[1], 3)}
            _reference_calls(worker, loaded, facts)
            marks.append(time.monotonic())
        facts["close_s"] = round(time.monotonic() - marks[-1], 3)
    fell_back = [mode for mode in _MODES if facts[f"{mode}_mode"] != mode]
    assert gpu.emulated or not fell_back, f"{', '.join(fell_back)}: the worker could only call one by one"


def _reference_calls(worker: WorkerClient, loaded: LoadedTask, facts: dict[str, Fact]) -> None:
    """The reference on secret inputs, in every mode. Fails for a wrong result."""
    (problem,) = problems(loaded, "cuda", timed_only=True, device=worker.transport.device)
    layout, sets = Layout(problem), 2
    worker.plan(layout, sets)
    for mode in _MODES:
        inputs = [problem.make_inputs() for _ in range(sets)]
        with Arena(layout, inputs, 0xFF, worker.transport) as arena:
            snapshot, reveal = worker.call(arena, sets, f"on {problem.label}", mode=mode)
        verifier = Verifier(problem)
        for given, result in zip(inputs, arena.results(snapshot), strict=True):
            finding = verifier.integrity(result) or verifier.values(given, result.outputs)
            if finding is not None:
                pytest.fail(f"the reference, {mode}: {finding.message}")
        facts[f"{mode}_mode"] = reveal.mode
        facts[f"{mode}_outside_us"] = reveal.outside_us / sets
        facts[f"{mode}_inside_us"] = None if reveal.claim_us is None else reveal.claim_us / sets
        facts["latency_us"] = reveal.latency_us


@pytest.mark.gpu(estimate_s=30.0, rank=3.7)
def test_start_is_infra(gpu: Bench, facts: dict[str, Fact]) -> None:
    """Where CUDA does not start in a worker nobody's project is to blame, and the next worker starts."""
    source = Source("project", CALLS, "calls", "nothing", repeatable=True)
    hidden = Wrapper(("/usr/bin/env", gpu.no_cuda), (), {})
    with judging(gpu) as judge, judge.workers() as workers:
        with workers.start(source, under=hidden) as worker, pytest.raises(SandboxError) as caught:
            worker.load()
        facts["said"] = str(caught.value)[:200]
        assert "CUDA did not start in a worker" in str(caught.value)
        assert not isinstance(caught.value, DeviceError)
        with workers.start(source) as worker:
            worker.load()
