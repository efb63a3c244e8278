"""The outside clock: what a worker's calls take, by the judge's figures and by the worker's claims.

Outside figures are total time / calls, never a median. A claim lowers a score by at most u,
the uncertainty of the outside figure (its formula: `lane`).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from harness.judge.worker_reply import Reveal
from harness.records import ContenderTiming, Lane, LaneName, Spread

MINIMUM_UNCERTAINTY_US = 2.0
"""Least u of a reveal, however many calls it holds."""
MOST_DOUBT = 0.05
"""Claims are used only while u is at most this share of the outside figure."""
LEAST_SHARE = 0.5
"""At least this share of the raw outside figure is scored: subtracting a large constant could remove more."""
FALSE_SHARE = 0.8
"""A claim above this share of the lower quartile of reveals is never called false (our choice)."""
HIGH_SHARE = 0.1
"""A claim may exceed the outside figure by this share, or by u if that is more (our choice)."""
MISMATCH = "clock_mismatch"
UNUSED = "outside_clock"
CHEAPER_IN_BATCHES = "cheaper_in_batches"

ReferenceClock = Literal["inside", "outside", "best"]
"""`best`: the smaller of both figures, for a reference beside a student whose claims contradict the clock."""


@dataclass
class Samples:
    reveals: list[Reveal] = field(default_factory=list)

    def add(self, block: int, reveal: Reveal) -> None:
        self.reveals.append(replace(reveal, block=block))

    def keep(self, blocks: set[int]) -> Samples:
        return Samples([one for one in self.reveals if one.block in blocks])

    @property
    def blocks(self) -> list[int]:
        return sorted({one.block for one in self.reveals})

    @property
    def calls(self) -> int:
        return sum(one.calls for one in self.reveals)

    @property
    def mean_outside_us(self) -> float:
        return sum(one.outside_us for one in self.reveals) / self.calls

    def mean_constant_us(self, constant: Constant) -> float:
        """What these reveals would cost without any work, per call."""
        return sum(constant.of(one) for one in self.reveals) / self.calls

    @property
    def mean_aside_us(self) -> float:
        return sum(one.aside_us for one in self.reveals) / self.calls

    @property
    def mean_claim_us(self) -> float | None:
        """Total of the claims / calls; None when one is missing: a worker cannot pick which calls count."""
        claims = [one.claim_us for one in self.reveals if one.claim_us is not None]
        return sum(claims) / self.calls if len(claims) == len(self.reveals) else None

    @property
    def single_us(self) -> list[float]:
        """Claims of single calls; of whole reveals, per call, where there are none."""
        each = [value for one in self.reveals for value in one.each_us]
        return each or [(one.claim_us or 0.0) / one.calls for one in self.reveals]


Lanes = dict[LaneName, Samples]


def lanes() -> Lanes:
    return {"call": Samples(), "batch": Samples()}


@dataclass(frozen=True)
class Constant:
    """What a reveal costs without any work."""

    us: float
    error_us: float
    """Standard error of `us`."""
    per_set_us: float = 0.0
    """What each further input set adds; part of neither of the others."""

    def of(self, reveal: Reveal) -> float:
        return self.us + self.per_set_us * reveal.calls


def constant_of(samples: Samples, apart: float = 1.0, *, robust: bool = False) -> Constant:
    """The mean (`robust`: the median) of at least 2 reveals without work. The cost of a set is the median
    slope between any two (Theil-Sen) whose sizes differ by the factor `apart` or more: a few stretched
    reveals do not bend it."""
    reveals = samples.reveals
    slopes: list[float] = []
    if len({one.calls for one in reveals}) > 1:  # single reveals are many, and their pairs are many more
        slopes = [
            (b.outside_us - a.outside_us) / (b.calls - a.calls)
            for a, b in itertools.combinations(reveals, 2)
            if a.calls != b.calls and max(a.calls, b.calls) >= apart * min(a.calls, b.calls)
        ]
    cheapest = min(one.outside_us / one.calls for one in reveals)
    slope = min(max(statistics.median(slopes), 0.0), cheapest) if slopes else 0.0
    rest = [one.outside_us - slope * one.calls for one in reveals]
    us = statistics.median(rest) if robust else statistics.fmean(rest)
    return Constant(us, statistics.stdev(rest) / math.sqrt(len(rest)), slope)


def without_work(reveal: Reveal) -> Reveal:
    """A reference's reveal without its calls and the copies of its results."""
    work_us = (reveal.claim_us or 0.0) + reveal.aside_us
    return replace(reveal, outside_us=max(reveal.outside_us - work_us, 0.0), aside_us=0.0)


def spread(values: Sequence[float]) -> Spread:
    if len(values) == 1:
        return Spread(n=1, mean_us=values[0], median_us=values[0], q1_us=values[0], q3_us=values[0])
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(n=len(values), mean_us=statistics.fmean(values), median_us=median, q1_us=q1, q3_us=q3)


def lane(name: LaneName, samples: Samples, constant: Constant, *, trusted: bool) -> Lane:
    """Both figures of one lane, and whether the claim may be used.

    u = max(3 sigma, a, 2 us per reveal), where `a` is the whole constant: a worker that avoids it answers
    sooner by at most that. A claim counts down to outside - (u - a), so both together gain at most u.
    `trusted`: the worker runs only our code; copying a reference's results is subtracted from its outside
    figure.
    """
    avoidable = samples.mean_constant_us(constant)
    aside = samples.mean_aside_us if trusted else 0.0
    outside = max(samples.mean_outside_us - aside - avoidable, 1e-3)
    net = [(one.outside_us - constant.of(one)) / one.calls for one in samples.reveals]
    own = statistics.stdev(net) / math.sqrt(len(net)) if len(net) > 1 else outside
    per_reveal = len(samples.reveals) / samples.calls
    sigma = math.hypot(own, constant.error_us * per_reveal)
    uncertainty = max(3 * sigma, avoidable, MINIMUM_UNCERTAINTY_US * per_reveal)
    claim = samples.mean_claim_us
    quartile = max(spread(net).q1_us - aside, 0.0)
    near = claim is not None and abs(claim - outside) <= uncertainty
    fine = uncertainty <= MOST_DOUBT * outside
    inside = outside if claim is None else claim
    singles = spread(samples.single_us if claim is not None else [inside])
    return Lane(
        name=name,
        calls=samples.calls,
        inside=singles.model_copy(update={"n": samples.calls, "mean_us": inside}),
        outside_us=outside,
        constant_us=avoidable,
        uncertainty_us=uncertainty,
        quartile_us=quartile,
        claimed=claim is not None,
        lowest_us=outside - (uncertainty - avoidable) if fine else None,
        matched=claim is not None and ((near and fine) or trusted),
    )


def contender_timing(
    name: str,
    samples: Lanes,
    constants: dict[LaneName, Constant],
    *,
    trusted: bool,
    clock: ReferenceClock = "inside",
) -> ContenderTiming:
    """The scored figure of one candidate, which is that of its batches; `clock` scores a reference."""
    found = {n: lane(n, samples[n], constants[n], trusted=trusted) for n in samples}
    scored = found["batch"]
    flags = () if scored.matched else (UNUSED,)
    if any(_mismatch(one, trusted) for one in found.values()):
        flags = (MISMATCH,)
    if trusted:
        figures = {"inside": scored.inside.mean_us, "outside": scored.outside_us}
        score = min(figures.values()) if clock == "best" else figures[clock]
    else:
        score = _student_us(scored, LEAST_SHARE * samples["batch"].mean_outside_us)
    return ContenderTiming(
        name=name,
        lanes=tuple(found.values()),
        lane="batch",
        score_us=max(score, 1e-3),
        latency_us=statistics.fmean(one.latency_us for one in samples["call"].reveals),
        flags=flags,
        reveals_us=tuple(_net_us(samples["batch"], constants["batch"], trusted=trusted)),
    )


def _net_us(samples: Samples, constant: Constant, *, trusted: bool) -> Iterator[float]:
    """Per call of each reveal; a reference's without the copy of its results."""
    for one in samples.reveals:
        aside = one.aside_us if trusted else 0.0
        yield max((one.outside_us - aside - constant.of(one)) / one.calls, 1e-3)


def _student_us(scored: Lane, least_us: float) -> float:
    if scored.matched and scored.lowest_us is not None:
        return max(scored.inside.mean_us, scored.lowest_us)
    outside = max(scored.outside_us, least_us)
    return max(scored.inside.mean_us, outside) if counts_high_claims(scored) else outside


def counts_high_claims(scored: Lane) -> bool:
    """Whether claims of a student that do not match count where they are high. Where the outside clock alone
    is used they do not: the larger of two noisy figures is too large."""
    return scored.lowest_us is not None or _mismatch(scored, trusted=False)


def _mismatch(one: Lane, trusted: bool) -> bool:
    """Whether the two clocks contradict each other, or the worker's own is missing."""
    if trusted or one.matched:
        return False
    high = one.outside_us + max(one.uncertainty_us, HIGH_SHARE * one.outside_us)
    return not one.claimed or claim_too_little(one) or one.inside.mean_us > high


def claims_too_little(timing: ContenderTiming) -> bool:
    return any(map(claim_too_little, timing.lanes))


def claim_too_little(one: Lane) -> bool:
    claim, quartile = one.inside.mean_us, one.outside_us if one.quartile_us is None else one.quartile_us
    return not one.matched and claim < one.outside_us - one.uncertainty_us and claim < FALSE_SHARE * quartile


def single_score_us(student: ContenderTiming, reference: ContenderTiming) -> float | None:
    """The score of a student whose single reveals cost more than its batches, by more than u and by more than
    the reference's do, as where the work of many sets is fused; None where they do not."""
    ours, theirs = ({one.name: one for one in each.lanes} for each in (student, reference))
    single, doubt = ours["call"].outside_us, ours["call"].uncertainty_us
    usual = max(theirs["call"].outside_us - theirs["batch"].outside_us, 0.0)
    if single - ours["batch"].outside_us <= doubt + usual:
        return None
    lowered = single - usual - doubt
    return lowered if lowered > student.score_us else None
