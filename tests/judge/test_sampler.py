"""What one visit shows, and the memory that stays mapped meanwhile, with workers that are threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.judge.clock import lanes
from harness.judge.problem import Problem
from harness.judge.protocol import Numbers
from harness.judge.sampler import Sampler
from harness.judge.transport import HostTransport
from harness.judge.values import OWN
from harness.judge.worker_client import Failed, Source, WorkerClient, WorkerPlace
from harness.outcome import Cause
from tests.fakes.overlays import throw_away_task
from tests.fakes.worker import HonestWorker, ThreadSandbox

PROJECT = Source("project", Path(__file__), "scale", "scale")
NUMBERS = Numbers(clean_blocks=1, most_blocks=1, fresh_processes=False, compiled=False, batch_sets=(8, 8))

Start = Callable[[Callable[..., None]], tuple[WorkerClient, ThreadSandbox]]


def right(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    torch.mul(x, alpha, out=out)


def made_of(*values: str) -> Sampler:
    loaded = throw_away_task("scale")
    problem = Problem(loaded, loaded.task.workloads[0], "float32")
    problem.task = problem.task.model_copy(update={"values": values})
    return Sampler(problem, NUMBERS, HostTransport())


@pytest.fixture
def bench() -> Iterator[Sampler]:
    made = made_of("large")
    yield made
    made.close()


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[WorkerClient] = []

    def run(act: Callable[..., None]) -> tuple[WorkerClient, ThreadSandbox]:
        sandbox = ThreadSandbox(HonestWorker(act))
        made.append(WorkerClient(PROJECT, sandbox, WorkerPlace(()), wall_s=60))
        made[-1].load()
        return made[-1], sandbox

    yield run
    for contender in made:
        contender.close()


def test_memory_is_only_written_while_the_worker_is_frozen(bench: Sampler, start: Start) -> None:
    """Frozen before inputs are written, thawed after t0, frozen for the snapshot, thawed for its claims."""
    contender, sandbox = start(right)
    bench.plan(contender, trusted=False)
    bench.reveal(contender, [bench._draw(2)], lanes(), 0, keep=True)
    assert sandbox.processes[0].pauses == [True, False, True, False]
    bench.verify()


def test_students_share_no_memory(bench: Sampler, start: Start) -> None:
    """Each process of a student's has its own, released when it ends; workers of ours share one."""
    one, other, ours, theirs = (start(right)[0] for _ in range(4))
    for contender in (one, other):
        bench.plan(contender, trusted=False)
    for contender in (ours, theirs):
        bench.plan(contender, trusted=True)
    assert ours.memory is theirs.memory
    assert len({id(c.memory) for c in (one, other, ours)}) == 3
    bench.release(one)
    bench.release(ours)
    assert len(bench._memory) == 2


def test_every_visit_has_a_probe_that_looks_like_the_others(bench: Sampler) -> None:
    """A single reveal or a batch with adversarial values at secret places; never scored, sometimes each."""
    sizes = set()
    for _ in range(40):
        visit = bench.visit()
        (probe,) = (one for one in visit if not one.scored)
        sizes.add(len(probe.inputs) > 1)
        assert set(probe.kinds) - {OWN}
        assert all(set(one.kinds) == {OWN} for one in visit if one.scored)
        assert max(len(one.inputs) for one in visit if one.scored) >= 4
    assert sizes == {True, False}


@pytest.mark.slow
def test_wrong_at_timed_sizes_is_found_by_probes(bench: Sampler, start: Start) -> None:
    """Right on the task's own values at every size, and on adversarial ones where nothing is timed."""

    def act(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        right(out, x.clamp(-6, 6), alpha=alpha)

    contender, _ = start(act)
    bench.plan(contender, trusted=False)
    samples = lanes()
    with pytest.raises(Failed) as caught:
        for block in range(20):
            bench.reveal(contender, bench.visit(), samples, block, keep=True)
            bench.verify()
    assert caught.value.finding.cause is Cause.WRONG_VALUES
    assert "values " in caught.value.finding.message


def test_probes_are_not_timed(bench: Sampler, start: Start) -> None:
    """Reveals in the samples are those of the task's own values; references see those, and no probes."""
    contender, _ = start(right)
    bench.plan(contender, trusted=False)
    samples = lanes()
    visit = bench.visit()
    bench.reveal(contender, visit, samples, 0, keep=True)
    assert sum(len(one.reveals) for one in samples.values()) == len(visit) - 1
    again = bench.again(visit, 0.0)
    assert [one.inputs for one in again] == [one.inputs for one in visit if one.scored]
