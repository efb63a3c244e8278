"""A/A calibration: equal contenders, and what is said of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.device.telemetry import Conditions, Telemetry, TelemetrySample
from harness.judge.calibration import calibrate, false_alarms, sizes_of
from harness.judge.measurement import Session
from harness.judge.protocol import numbers_of
from harness.judge.shared_memory import HostTransport
from harness.judge.worker_client import Source, WorkerClient, WorkerPlace
from harness.records.timing import Calibration
from tests.fakes.overlays import throw_away_task
from tests.fakes.worker import HonestWorker, ThreadSandbox

QUICK = numbers_of("quick", on_device=False)


class Machine(Telemetry):
    runnable = 1

    def sample(self) -> TelemetrySample:
        return TelemetrySample(0.0, cores=2, runnable=self.runnable)


def start(source: Source) -> WorkerClient:
    def scale(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        torch.mul(x, alpha, out=out)

    worker = HonestWorker(scale, claim_ns=20_000_000)
    if source.kind == "null":
        worker = HonestWorker(lambda *operands, **scalars: None, claim_ns=0)
    return WorkerClient(source, ThreadSandbox(worker), WorkerPlace(()), wall_s=600)


def calibration(runnable: int = 1) -> Calibration:
    loaded, transport = throw_away_task("scale"), HostTransport()
    numbers = replace(QUICK, warm_up_s=0.0)
    machine = Machine()
    machine.runnable = runnable
    session, sizes = (
        Session(numbers, transport, Conditions(machine)),
        sizes_of(loaded, "cpu", transport, numbers),
    )
    return calibrate(start, loaded, sizes[:1], session, processes=3, blocks=5)


def test_equal_contenders_are_found_equal() -> None:
    """Workers that claim the same give a ratio of 1, no spread and no false alarm."""
    found = calibration()
    (size,) = found.sizes
    assert (size.inside_us, size.bytes_moved) == (20_000.0, 2 * 8 * 256 * 4)
    assert (size.ratio.value, size.ratio.n, size.process_spread) == (1.0, 5, 0.0)
    assert {one.lane for one in size.hand_shake} == {"call", "batch"}
    assert all(one.c05_us <= one.median_us <= one.p95_us for one in size.hand_shake)
    own = [one for one in found.false_alarms if one.clock == "inside"]
    assert [(one.protocol, one.rate, one.rate_with_gate) for one in own] == [("quick", 0, 0), ("full", 0, 0)]
    assert (found.blocks, found.disturbed_blocks, found.noisy) == (5, 0, False)


def test_a_busy_machine_is_called_noisy() -> None:
    """With the reason, whatever the figures are."""
    found = calibration(runnable=9)
    assert found.noisy
    assert found.disturbed_blocks == found.blocks
    assert found.disturbances == ("more threads than its 2 cores were runnable",)


def test_sizes_that_do_not_fit_are_left_out() -> None:
    """A batch of the largest must fit into what one arena may take."""
    loaded, transport = throw_away_task("scale"), HostTransport()
    assert [p.workload.dims["rows"] for p in sizes_of(loaded, "cpu", transport, QUICK)] == [8, 64, 384]
    tight = replace(QUICK, batch_sets=(1 << 12, 1 << 12))
    assert [p.workload.dims["rows"] for p in sizes_of(loaded, "cpu", transport, tight)] == [8]


def drawn(spread: float, noise: float, processes: int = 40, blocks: int = 20) -> Sequence[Sequence[float]]:
    order = random.Random(1)
    levels = [100.0 * (1 + order.gauss(0, spread)) for _ in range(processes)]
    return [[level * (1 + order.gauss(0, noise)) for _ in range(blocks)] for level in levels]


def test_with_noise_alone_every_rule_keeps_its_word() -> None:
    """A 95 % interval errs upwards in about 2.5 % of comparisons."""
    for protocol in ("quick", "full"):
        found = false_alarms([drawn(0.0, 0.05)], protocol, "inside", 5)
        assert 0.005 < found.rate < 0.045
        assert found.rate_with_gate <= found.rate


def test_processes_that_differ_are_false_alarms_of_quick_but_not_of_full() -> None:
    """An interval over blocks of one pair cannot see how processes differ: the reason for process pairs."""
    rows = [drawn(0.05, 0.002)]
    assert false_alarms(rows, "quick", "inside", 5).rate > 0.3
    assert false_alarms(rows, "full", "inside", 5).rate < 0.05
