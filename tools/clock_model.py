"""What the outside clock would say on a made-up device: `python -m tools.clock_model` writes its page.

Accuracy of honest projects' ratios over all timed workloads, and what forgers would gain. Everything is drawn
from seeds; nothing was measured on a GPU.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from random import Random

from harness.judge import clock
from harness.judge.candidates import STUDENT
from harness.judge.measurement import ratio
from harness.judge.protocol import CONFIRMATIONS
from harness.judge.scoring import UNRESOLVED, Comparison, Scores
from harness.records import Ratio
from tests.fakes.device_model import (
    BATCHES,
    H100,
    H200,
    NUMBERS,
    SAMPLE_US,
    UNASSUMED,
    DeviceModel,
    Timed,
    Worker,
    escaping_share,
    measured,
    unseen,
    workloads,
)

PAGE = Path(__file__).resolve().parent.parent / "docs" / "generated" / "clock_model.md"
_TEXT = Path(__file__).with_suffix(".md")
LABEL = "simulated, not measured on a GPU"
RUNS = 10
"""Honest measurements of each workload."""
FORGED_RUNS = 5
CLAIMS = (0.5, 0.9, 0.95, 0.98, 0.99)
DEFERRED = (0.5, 0.05, 0.005)


@dataclass(frozen=True)
class Accuracy:
    """Of honest measurements; shares of 1."""

    runs: int
    within: float
    """Ratios within 2 % of the truth."""
    bias: float
    """Mean of ratio / truth - 1."""
    refused: float
    """Without an interval."""
    covered: float
    """Intervals that hold the truth, among those that there are."""
    half_width: float
    """Median, of the ratio."""
    suspects: int
    """Claims far below the outside clock."""
    convicted: int
    """The same in 3 of 3 processes."""

    def __str__(self) -> str:
        shares = f"{self.within:.1%} | {self.bias:+.2%} | {self.covered:.1%} | {self.refused:.1%}"
        return f"{shares} | {self.half_width:.1%} | {self.suspects} of {self.runs:,}"


def compared(device: DeviceModel, timed: Timed, worker: Worker, seed: object) -> tuple[Comparison, Ratio]:
    found = Scores(measured(device, timed, worker, Random(str(seed)))).compare()
    return found, ratio(found.logs, resolved=UNRESOLVED not in found.flags)


def convicted(device: DeviceModel, timed: Timed, worker: Worker, seed: object) -> bool:
    """Whether claims are too little in fresh processes too, as a measurement confirms it on the host."""
    random = Random(str(seed))
    first = Scores(measured(device, timed, worker, random))
    again = (measured(device, timed, worker, random)[STUDENT] for _ in range(CONFIRMATIONS))
    timings = (clock.contender_timing(STUDENT, one, first.constants, trusted=False) for one in again)
    return clock.claims_too_little(first.timing(STUDENT)) and all(map(clock.claims_too_little, timings))


def accuracy(device: DeviceModel, worker: Worker, runs: int = RUNS) -> Accuracy:
    """Of an honest worker: the truth is max(work, launch)."""
    errors, covered, widths, suspects = [], [], [], []
    for timed in workloads(device):
        ours_us = device.call_us(timed.reference_us / worker.speed, worker.launches)
        truth = device.call_us(timed.reference_us) / ours_us
        for run in range(runs):
            seed = (device, timed.task, timed.name, worker.speed, run)
            found, value = compared(device, timed, worker, seed)
            errors.append(value.value / truth - 1)
            if clock.claims_too_little(found.student):
                suspects.append(convicted(device, timed, worker, seed))
            if value.low is not None and value.high is not None:
                covered.append(value.low <= truth <= value.high)
                widths.append((value.high - value.low) / 2 / value.value)
    return Accuracy(
        runs=len(errors),
        within=statistics.fmean(abs(error) <= 0.02 for error in errors),
        bias=statistics.fmean(errors),
        refused=1 - len(covered) / len(errors),
        covered=statistics.fmean(covered),
        half_width=statistics.median(widths),
        suspects=len(suspects),
        convicted=sum(suspects),
    )


def _whole_constant(constant_us: float, work_us: float, sets: int) -> float:
    return constant_us


def _until_sampled(constant_us: float, work_us: float, sets: int) -> float:
    return min(SAMPLE_US, work_us)


def forgers(timed: Timed, speed: float) -> dict[str, list[Worker]]:
    """By name: variants, of which the best one counts."""
    escaping = escaping_share(timed.outputs) / BATCHES

    def deferred(constant_us: float, work_us: float, sets: int) -> float:
        return escaping * work_us / sets

    honest = Worker(speed)
    avoids = replace(honest, hides=_whole_constant)
    return {
        "false claims": [replace(honest, claimed=claim) for claim in CLAIMS],
        "avoids the constant": [avoids],
        "both": [replace(avoids, claimed=claim) for claim in CLAIMS],
        "early `done`": [replace(honest, hides=_until_sampled)],
        "defers, seen in 50 %": [replace(honest, hides=deferred)],
    }


@dataclass(frozen=True)
class Gain:
    """What a forger adds to a ratio, beside an honest worker that meets the same noise."""

    timed: Timed
    forger: str
    true_us: float
    share: float
    """Of the honest ratio."""
    doubt_us: float
    """u, per call."""

    @property
    def us(self) -> float:
        """Per call."""
        return self.true_us * (1 - 1 / (1 + self.share))

    @property
    def excess(self) -> float:
        """Beyond u, as a share of the true time."""
        return (self.us - self.doubt_us) / self.true_us


def gains(device: DeviceModel, speed: float, runs: int) -> Iterator[Gain]:
    """Of each forger's best variant on each workload."""
    for timed in workloads(device):
        seeds = [(device, timed.task, timed.name, speed, run) for run in range(runs)]
        honest = [math.log(compared(device, timed, Worker(speed), seed)[1].value) for seed in seeds]
        true_us = device.call_us(timed.reference_us / speed)
        for name, variants in forgers(timed, speed).items():
            found = []
            for worker in variants:
                both = [compared(device, timed, worker, seed) for seed in seeds]
                logs = [math.log(r.value) - h for (_, r), h in zip(both, honest, strict=True)]
                doubt = statistics.fmean(c.student.scored_lane.uncertainty_us for c, _ in both)
                found.append(Gain(timed, name, true_us, math.expm1(statistics.fmean(logs)), doubt))
            yield max(found, key=lambda one: one.share)


def seen(timed: Timed, share: float, *, tail: bool) -> float:
    """Probability that one reveal of one set shows that a share of its elements came late."""
    deferred = min(math.ceil(share * sum(timed.outputs)), max(timed.outputs))
    return 1 - unseen(max(timed.outputs), deferred, tail=tail)


def heaviest(timed: Timed) -> float:
    """How many times the mean the deferred elements' work would have to be for a gain of 0.5 %."""
    calls = BATCHES * NUMBERS.batch_sets[0]
    return 0.005 * calls / max(escaping_share(timed.outputs), 1e-9)


def _gain_rows(found: Iterable[Gain]) -> Iterator[str]:
    """Of each task, on the workload on which the forger gains most."""
    for task, each in groupby(found, key=lambda one: one.timed.task):
        rows = list(each)
        names = dict.fromkeys(one.forger for one in rows)
        best = [max((g for g in rows if g.forger == name), key=lambda g: g.share) for name in names]
        cells = [f"{100 * one.share:.2g} % ({one.us:.2g})" for one in best]
        yield f"| {task} | {' | '.join(cells)} | {best[1].doubt_us / best[1].true_us:.1%} |"


def page() -> str:
    """The whole page, in Markdown."""
    devices = {H100.name: H100, H200.name: H200, **UNASSUMED}
    workers = {"1.00x": Worker(), "2.00x": Worker(2.0), "2.00x, 8 launches a call": Worker(2.0, launches=8)}
    rows = {
        (name, speed): accuracy(device, worker)
        for name, device in devices.items()
        for speed, worker in workers.items()
        if name not in UNASSUMED or worker.launches == 1
    }
    runs, convictions = sum(a.runs for a in rows.values()), sum(a.convicted for a in rows.values())
    timed = workloads(H100)
    least = {f: min(seen(t, f, tail=tail) for t in timed for tail in (False, True)) for f in DEFERRED}
    names = list(forgers(timed[0], 1.0))
    tables = [
        f"""
## Forgers beside a true {speed:.2f}x, {device.name}: {LABEL}

| task | {" | ".join(names)} | u |
|---|{"---|" * len(names)}---|
"""
        + "\n".join(_gain_rows(gains(device, speed, FORGED_RUNS)))
        for device, speed in ((H100, 1.0), (H100, 2.0))
    ]
    return _TEXT.read_text().format(
        label=LABEL,
        workloads=len(timed),
        accuracy="\n".join(f"| {name} | {speed} | {a} |" for (name, speed), a in rows.items()),
        convictions=convictions,
        runs=runs,
        most=3 / runs,
        deferred="\n".join(f"| {share:.1%} | {one:.7%} |" for share, one in least.items()),
        heaviest=min(map(heaviest, timed)),
        forged_runs=FORGED_RUNS,
        gains="\n".join(tables),
    )


if __name__ == "__main__":
    PAGE.write_text(page())
