"""The outside clock: what one contender takes, as the judge sees it and as the worker claims it.

Owns: lanes, the null project's constant, uncertainty, and the rule that turns two figures into one.
Does not own: the order of contenders and the ratio (timing.py).
Invariant: outside figures are total time / calls, never a median over calls; a claim is used only
within u of them, and never below half of their lower quartile.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.judge.contender import CallTimes
from harness.records import ContenderTiming, Lane, Spread

RELATIVE_UNCERTAINTY = 0.10
MINIMUM_UNCERTAINTY_US = 2.0
LOWEST_CLAIM = 0.5
"""Of the outside figure's lower quartile: a lower claim is not used, however large u is. On a noisy host
u exceeds the figure itself, and a claim of 0 would lie within it (measured: a stopped clock scored
x139,000). The quartile, because a noisy host stretches the mean several times over, and honest claims
must not fall; it is safe as a bound, since no call can be answered before its work is done."""
LATENCY_FACTOR = 10.0
"""A workload shorter than this many L is scored in the batch lane."""

LaneName = Literal["call", "batch"]


@dataclass
class Samples:
    """Reveals of one contender in one lane. All lists run in parallel."""

    block: list[int] = field(default_factory=list)
    sets: list[int] = field(default_factory=list)
    outside_us: list[float] = field(default_factory=list)
    """Whole reveal."""
    inside_us: list[tuple[float, ...]] = field(default_factory=list)
    latency_us: list[float] = field(default_factory=list)

    def add(self, block: int, sets: int, times: CallTimes) -> None:
        """One reveal."""
        self.block.append(block)
        self.sets.append(sets)
        self.outside_us.append(times.outside_s * 1e6)
        self.inside_us.append(tuple(ns / 1e3 for ns in times.inside_ns))
        self.latency_us.append(times.latency_s * 1e6)

    def keep(self, blocks: set[int]) -> Samples:
        """The samples of some blocks."""
        kept = Samples()
        for i, block in enumerate(self.block):
            if block in blocks:
                kept.block.append(block)
                kept.sets.append(self.sets[i])
                kept.outside_us.append(self.outside_us[i])
                kept.inside_us.append(self.inside_us[i])
                kept.latency_us.append(self.latency_us[i])
        return kept

    @property
    def calls(self) -> int:
        """Calls in all reveals."""
        return sum(self.sets)

    @property
    def per_call_us(self) -> list[float]:
        """Outside time per call of each reveal."""
        return [t / k for t, k in zip(self.outside_us, self.sets, strict=True)]

    @property
    def mean_outside_us(self) -> float:
        """Total time / calls."""
        return sum(self.outside_us) / self.calls

    @property
    def claimed(self) -> bool:
        """Whether the worker made a well-formed claim for every call."""
        return all(len(c) == k for c, k in zip(self.inside_us, self.sets, strict=True))

    @property
    def claims_us(self) -> list[float]:
        """The worker's claims, call by call."""
        return [value for reveal in self.inside_us for value in reveal]


@dataclass(frozen=True)
class Constant:
    """What a reveal costs without any work, per call: from the null project."""

    low_us: float
    """5th percentile: c05."""
    spread_us: float
    """Mean less the 5th percentile: what an honest worker's mean is too high by."""


def constant_of(samples: Samples) -> Constant:
    """The null project's constant. Needs at least 2 reveals."""
    values = sorted(samples.per_call_us)
    low = statistics.quantiles(values, n=20, method="inclusive")[0]
    return Constant(low, statistics.fmean(values) - low)


def spread(values: Sequence[float]) -> Spread:
    """Mean, median and quartiles. ValueError when empty."""
    if not values:
        raise ValueError("no durations")
    if len(values) == 1:
        return Spread(n=1, mean_us=values[0], median_us=values[0], q1_us=values[0], q3_us=values[0])
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(n=len(values), mean_us=statistics.fmean(values), median_us=median, q1_us=q1, q3_us=q3)


def lane(name: LaneName, samples: Samples, constant: Constant, *, trusted: bool) -> Lane:
    """Both figures of one lane, and whether the claim may be used.

    `trusted`: the worker runs only our code, so its own figure stands (and leaves out the copy of a
    reference's result into the judge's buffer, which the outside figure includes).
    """
    outside = max(samples.mean_outside_us - constant.low_us, 1e-3)
    per_call = samples.per_call_us
    own = statistics.stdev(per_call) / math.sqrt(len(per_call)) if len(per_call) > 1 else outside
    sigma = math.hypot(own, constant.spread_us)
    uncertainty = max(RELATIVE_UNCERTAINTY * outside, 3 * sigma, MINIMUM_UNCERTAINTY_US)
    inside = spread(samples.claims_us if samples.claimed else [outside])
    lowest = LOWEST_CLAIM * (spread(per_call).q1_us - constant.low_us)
    near = abs(inside.mean_us - outside) <= uncertainty and inside.mean_us >= lowest
    return Lane(
        name=name,
        calls=samples.calls,
        inside=inside,
        outside_us=outside,
        constant_us=constant.low_us,
        uncertainty_us=uncertainty,
        matched=samples.claimed and (near or trusted),
    )


def contender_timing(
    name: str, samples: dict[LaneName, Samples], constants: dict[LaneName, Constant], *, trusted: bool
) -> ContenderTiming:
    """The scored figure of one contender."""
    lanes = {n: lane(n, samples[n], constants[n], trusted=trusted) for n in samples}
    latency = statistics.fmean(samples["call"].latency_us)
    limited = lanes["call"].outside_us < LATENCY_FACTOR * latency
    chosen: LaneName = "batch" if limited else "call"
    scored = lanes[chosen]
    flags = []
    if not all(one.matched for one in lanes.values()):
        flags.append("clock_mismatch")
    if limited:
        flags.append("clock-limited")
    inside = scored.inside.mean_us
    return ContenderTiming(
        name=name,
        lanes=tuple(lanes.values()),
        lane=chosen,
        score_us=max(inside if scored.matched else max(inside, scored.outside_us), 1e-3),
        latency_us=latency,
        flags=tuple(flags),
    )


def claims_too_little(timing: ContenderTiming) -> bool:
    """Whether in some lane the claim lies below the outside figure by more than u."""
    return any(one.inside.mean_us < one.outside_us - one.uncertainty_us for one in timing.lanes)


def block_means(samples: Samples, constant: Constant, *, inside: bool) -> dict[int, float]:
    """Mean microseconds per call for each block: the claims, or the outside figure."""
    means: dict[int, float] = {}
    for block in sorted(set(samples.block)):
        one = samples.keep({block})
        value = statistics.fmean(one.claims_us) if inside else one.mean_outside_us - constant.low_us
        means[block] = max(value, 1e-3)
    return means
