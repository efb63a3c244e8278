"""Calibration: pairs of a known ratio, and what is said of them."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.device.telemetry import Conditions, Telemetry, TelemetrySample
from harness.judge.calibration import calibrate, sizes_of
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


CLAIMED_NS = {"reference": 20_000_000, "long": 20_000_000, "short": 10_000_000}


def start(source: Source) -> WorkerClient:
    def scale(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        torch.mul(x, alpha, out=out)
        time.sleep(CLAIMED_NS[source.function] / 1e9)

    worker = HonestWorker(scale, claim_ns=CLAIMED_NS.get(source.function, 0))
    return WorkerClient(source, ThreadSandbox(worker), WorkerPlace(()), wall_s=600)


def calibration(runnable: int = 1, equal: int = 1, known: int = 1) -> Calibration:
    loaded, transport = throw_away_task("scale"), HostTransport()
    numbers = replace(QUICK, warm_up_s=0.0, stage_s=0.0, most_blocks=5, batch_sets=(2, 2))
    machine = Machine()
    machine.runnable = runnable
    session = Session(numbers, transport, Conditions(machine))
    sizes = sizes_of(loaded, "cpu", transport, numbers)
    return calibrate(start, loaded, sizes[:1], session, equal=equal, known=known)


@pytest.mark.alone
def test_known_ratios_are_found() -> None:
    """Workers that take and claim the same give a ratio of 1, and half of the time one of 2."""
    found = calibration()
    by_truth = {one.truth: one for one in found.pairs}
    assert [by_truth[truth].ratio.value for truth in (1.0, 2.0)] == pytest.approx([1.0, 2.0], rel=0.1)
    assert not any(one.missed for one in found.pairs if one.clock == "inside")
    assert {one.lane for one in found.hand_shake} == {"call", "batch"}
    assert all(one.c05_us <= one.median_us <= one.p95_us for one in found.hand_shake)
    assert 0 < found.timed_share < 1
    assert (found.blocks, found.disturbed_blocks) == (10, 0)


@pytest.mark.slow
def test_a_busy_machine_is_called_noisy() -> None:
    """With the reason, whatever the figures are."""
    found = calibration(runnable=9, known=0)
    assert found.noisy
    assert found.disturbed_blocks == found.blocks
    assert found.disturbances == ("more threads than its 2 cores were runnable",)


def test_sizes_that_do_not_fit_are_left_out() -> None:
    """A batch of the largest must fit into what one arena may take."""
    loaded, transport = throw_away_task("scale"), HostTransport()
    assert [p.workload.dims["rows"] for p in sizes_of(loaded, "cpu", transport, QUICK)] == [8, 64, 384]
    tight = replace(QUICK, batch_sets=(1 << 12, 1 << 12))
    assert [p.workload.dims["rows"] for p in sizes_of(loaded, "cpu", transport, tight)] == [8]
