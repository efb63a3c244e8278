"""The outside clock on a made-up device: honest ratios are right or refused, and forgers gain at most u."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from itertools import groupby
from random import Random

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")

import torch

from harness.judge.guarded_buffers import Slot
from harness.judge.keystream import SecretGenerator
from harness.judge.output_sample import POSITIONS, positions_of
from harness.records import Operand
from tests.fakes.device_model import (
    H100,
    H200,
    UNASSUMED,
    DeviceModel,
    Worker,
    escaping_share,
    unseen,
    workloads,
)
from tools.clock_model import DEFERRED, accuracy, convicted, gains, heaviest, seen

HONEST = [Worker(), Worker(2.0)]


def least(share: float, runs: int) -> float:
    """What a count of independent runs with that share falls below once in 700."""
    return share - 3 * math.sqrt(share * (1 - share) / runs)


@pytest.mark.parametrize("worker", HONEST, ids=["1.00x", "2.00x"])
def test_honest_ratios_are_right(worker: Worker) -> None:
    """Over all timed workloads, equal projects are within 2 % of 1, and a true 2.00x reads 1.96x to 2.04x."""
    assert len(workloads(H100)) == 129
    found = accuracy(H100, worker, runs=2)
    assert found.within >= least(0.95, found.runs)
    assert (found.refused, found.suspects) == (0.0, 0)


@pytest.mark.slow
def test_ten_thousand_honest_runs() -> None:
    """On devices as the clock assumes them: 95 % within 2 %, 95 % of the intervals hold the truth, and none
    convicted in 10,000 runs (below 0.03 % by the rule of three)."""
    workers = (Worker(), Worker(2.0), Worker(2.0, launches=8))
    every = [accuracy(device, worker, runs=13) for device in (H100, H200) for worker in workers]
    assert sum(one.runs for one in every) >= 10_000
    for one in every:
        assert one.within >= 0.95
        assert one.covered >= least(0.95, one.runs)
        assert abs(one.bias) < 0.005
    assert sum(one.convicted for one in every) == 0


@pytest.mark.slow
@pytest.mark.parametrize("device", UNASSUMED.values(), ids=list(UNASSUMED))
def test_other_devices_widen_or_refuse(device: DeviceModel) -> None:
    """Where the clock's assumptions are wrong, intervals still hold the truth, or there are none."""
    for worker in HONEST:
        found = accuracy(device, worker, runs=6)
        assert found.covered >= least(0.95, found.runs)
        assert found.convicted == 0


def test_liar_is_convicted() -> None:
    """The rule by which no honest run is convicted finds false claims."""
    timed = workloads(H100)[0]
    assert convicted(H100, timed, Worker(claimed=0.5), 1)
    assert not convicted(H100, timed, Worker(), 1)


@pytest.mark.slow
@pytest.mark.parametrize("speed", [1.0, 2.0])
def test_forgers_gain_at_most_u(speed: float) -> None:
    """On every workload without noise, and on average over all of them with it, a forger gains less than u
    and 0.5 %."""
    quiet = replace(H100, noise=0.0, call_noise=0.0, clock_noise=0.0)
    for gain in gains(quiet, speed, runs=1):
        assert gain.excess < 0.005, gain
        if gain.forger.startswith("defers"):
            assert gain.share < 0.005, gain
    for device in (H100, H200):
        noisy = sorted(gains(device, speed, runs=1), key=lambda one: one.forger)
        for forger, each in groupby(noisy, key=lambda one: one.forger):
            assert statistics.fmean(one.excess for one in each) < 0.005, forger


def test_deferred_work_is_seen() -> None:
    """Half, a twentieth and 1 in 200 of the elements are seen in one reveal, wherever they lie; what escapes
    in half of the measurements is worth less than 0.5 %, though it took 100 times the mean work."""
    for timed in workloads(H100):
        assert min(seen(timed, share, tail=tail) for share in DEFERRED for tail in (False, True)) > 1 - 1e-6
        assert heaviest(timed) > 100


@pytest.mark.parametrize("order", ["tail", "spread", "guess"])
@pytest.mark.parametrize("count", [POSITIONS, 3 * POSITIONS + 17, 100_000])
def test_no_order_of_stores_escapes_the_sample(order: str, count: int) -> None:
    """The sample that the judge draws misses the last elements, elements spread over its parts, and those
    that a sample drawn by the worker left out, at most as often as the closed form says."""
    operand = Operand(name="out", role="out", shape=(str(count),), dtype="float32")
    slot = Slot(operand, (count,), torch.float32, 4096, 4 * count)
    deferred = max(1, int(escaping_share([count]) * count))
    random, tries, missed = Random(f"{order} {count}"), 400, 0
    for _ in range(tries):
        late = torch.arange(count - deferred, count)
        if order != "tail":
            parts = torch.tensor(random.sample(range(min(count, POSITIONS)), deferred))
            late = parts * count // min(count, POSITIONS)
        if order == "guess":
            guess = positions_of(slot, {}, SecretGenerator(random.randbytes(32)))
            late = torch.where(torch.isin(late, guess), (late + 1).clamp(max=count - 1), late)
        sample = positions_of(slot, {}, SecretGenerator(random.randbytes(32)))
        missed += not torch.isin(late, sample).any()
    most = unseen(count, deferred, tail=order == "tail")
    assert most / 2 <= missed / tries <= most + 4 * math.sqrt(most * (1 - most) / tries)
