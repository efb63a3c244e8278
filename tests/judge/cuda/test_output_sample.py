"""Which outputs are read before the clock stops on a device, and what changes afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.judge import output_sample
from harness.judge.check import problems
from harness.judge.guarded_buffers import Arena, Layout, Slot
from harness.judge.keystream import SecretGenerator
from harness.judge.output_sample import OutputSample, positions_of
from harness.judge.problem import Problem
from harness.judge.shared_memory import CudaTransport
from tests.fakes.cuda_driver import FakeDriver
from tests.fakes.overlays import throw_away_task

CPU = torch.device("cpu")


@pytest.fixture
def transport(driver: FakeDriver) -> Iterator[CudaTransport]:
    found = CudaTransport(driver=driver, tensors=CPU)
    yield found
    found.close()


def problem_of(name: str) -> Problem:
    return problems(throw_away_task(name), "cpu")[0]


def slot_of(count: int) -> Slot:
    operand = throw_away_task("scale").task.outputs[0]
    return Slot(operand, (count,), torch.float32, 4096, 4 * count)


@pytest.mark.parametrize("count", [1, 4095, 4096, 6000, 12_288, 100_003])
def test_every_part_of_an_output_has_a_position(count: int) -> None:
    """All positions of a small output; of a large one, one in each of 4,096 equal parts, drawn afresh."""
    draws = [positions_of(slot_of(count), {}, SecretGenerator()) for _ in range(2)]
    for found in draws:
        assert len(found) == len(set(found.tolist())) == min(count, 4096)
        assert int(found[0]) >= 0 and int(found[-1]) < count
        widest = int((found[1:] - found[:-1]).max()) if count > 1 else 1
        assert widest <= 2 * -(-count // 4096)
    assert torch.equal(*draws) == (count <= 4096)


@pytest.mark.parametrize("name", ["scale", "masked_scale", "two_outputs"])
def test_what_is_written_after_the_sample_is_counted(
    name: str, transport: CudaTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late elements of sampled positions count, in any set and output; without late work none does."""
    monkeypatch.setattr(output_sample, "POSITIONS", 1 << 20)
    problem = problem_of(name)
    inputs = [problem.make_inputs() for _ in range(3)]
    with Arena(Layout(problem), inputs, 0xFF, transport) as arena:
        sample = OutputSample(arena, inputs, transport)
        sample.read()
        assert sample.late(arena.snapshot()) == 0
        late = 0
        for slot in arena.layout.written:
            places = arena.shared[2, slot.offset : slot.offset + slot.size].view(slot.dtype)
            chosen = positions_of(slot, inputs[2], SecretGenerator())
            assert len(chosen) == len(places) or slot.operand.mask is not None
            places[chosen[::2]] = 7.0
            late += len(chosen[::2])
        assert sample.late(arena.snapshot()) == late


def test_late_work_escapes_by_chance_alone(transport: CudaTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 positions, 1 % of the elements written late escape in about (1 - 0.01)^64 of the calls."""
    monkeypatch.setattr(output_sample, "POSITIONS", 64)
    problem, seen, calls = problem_of("scale"), 0, 50
    inputs = [problem.make_inputs()]
    with Arena(Layout(problem), inputs, 0xFF, transport) as arena:
        (slot,) = arena.layout.written
        places = arena.shared[0, slot.offset : slot.offset + slot.size].view(torch.float32)
        late = max(1, len(places) // 100)
        for _ in range(calls):
            places.fill_(0.0)
            sample = OutputSample(arena, inputs, transport)
            sample.read()
            places[torch.randperm(len(places))[:late]] = 1.0
            seen += sample.late(arena.snapshot()) > 0
    expected = 1 - (1 - late / len(places)) ** 64
    assert abs(seen / calls - expected) < 0.3  # 4 standard errors
