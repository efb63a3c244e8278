"""What one workload's samples say: each candidate's figure, and one log ratio per block.

The outside clock decides, over all blocks, which clock gives the student's time; the fastest reference is
taken by the same. Then every block gives ln(reference / student).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from harness.judge import clock as clocks
from harness.judge.candidates import NULL, STUDENT
from harness.judge.clock import Constant, Lanes, ReferenceClock, Samples, lanes
from harness.records import ContenderTiming, Lane, LaneName
from harness.records.base import ClockName

UNRESOLVED: Final = "unresolved"
"""Flag of a ratio by the outside clock where over half of a reveal is its constant: it has no interval."""
SCORED: Final[LaneName] = "batch"
_APART: Final = 2.0


@dataclass(frozen=True)
class Comparison:
    student: ContenderTiming
    references: tuple[ContenderTiming, ...]
    logs: tuple[float, ...]
    """ln(fastest reference / student) of each block."""
    fastest: ContenderTiming
    """Of the references."""
    flags: frozenset[str]

    @property
    def clock(self) -> ClockName:
        return "inside" if self.student.scored_lane.matched else "outside"


def overheads(samples: Mapping[str, Lanes]) -> Lanes:
    """Reveals without work: the null project's, or where there is none the references' without their calls,
    whose claims are true. These last as long as a student's, after which a worker is stopped later."""
    if NULL in samples:
        return samples[NULL]
    found = lanes()
    for name in samples:
        for lane, some in samples[name].items() if name != STUDENT else ():
            found[lane].reveals += map(clocks.without_work, some.reveals)
    return found


class Scores:
    def __init__(self, samples: Mapping[str, Lanes], gone: Mapping[str, Lanes] | None = None) -> None:
        """`samples`: by candidate, at least 2 reveals in each lane; `gone`: those of all but the student,
        with its process gone."""
        self._samples = samples
        self.overheads = overheads(samples)
        # Slow references are shown few sets; their slope would be drawn out to many times their sizes.
        self._apart = 1.0 if NULL in samples else _APART
        self._overheads_gone = overheads(gone or {})

    @cached_property
    def constants(self) -> dict[LaneName, Constant]:
        """The lower one of those with the student's process frozen and gone, since what that process slows
        down must not be subtracted from its own time."""
        found: dict[LaneName, Constant] = {}
        for lane, samples in self.overheads.items():
            both = (samples, self._overheads_gone[lane])
            constants = [clocks.constant_of(one, self._apart) for one in both if len(one.reveals) > 1]
            found[lane] = min(constants, key=lambda one: one.us)
        return found

    @cached_property
    def _block_constants(self) -> dict[int, Constant]:
        """Of the scored lane, by block: what reveals cost drifts, and the error of the constant has to show
        in how the blocks' ratios spread. Their mean is the constant of all blocks."""
        constant, samples = self.constants[SCORED], self.overheads[SCORED]

        def excess_us(some: Samples) -> float:
            return sum(one.outside_us - constant.of(one) for one in some.reveals) / len(some.reveals)

        usual = excess_us(samples)
        own = {block: excess_us(samples.keep({block})) - usual for block in samples.blocks}
        return {block: replace(constant, us=constant.us + extra) for block, extra in own.items()}

    def timing(self, name: str, clock: ReferenceClock = "inside") -> ContenderTiming:
        return clocks.contender_timing(
            name, self._samples[name], self.constants, trusted=name != STUDENT, clock=clock
        )

    def block_us(self, name: str, clock: ReferenceClock, below_us: float = math.inf) -> dict[int, float]:
        """Mean microseconds per call in the scored lane, by block. ValueError where claims are missing.

        `below_us`: how far below the outside figure of its own block a student's claim counts: a geometric
        mean over blocks of claims that are right on average and 0 in most blocks would give any ratio, and a
        bound for all blocks would raise the faster ones only.
        """
        samples, means = self._samples[name][SCORED], dict[int, float]()
        for block in samples.blocks:
            one = samples.keep({block})
            raw = _raw_us(name, one)
            constant = self._block_constants.get(block, self.constants[SCORED])
            value = max(raw - one.mean_constant_us(constant), clocks.LEAST_SHARE * raw)
            if clock != "outside":
                claim = one.mean_claim_us
                if claim is None:
                    raise ValueError("a reveal without a claim")
                value = max(claim, value - below_us) if clock == "inside" else min(value, claim)
            means[block] = max(value, 1e-3)
        return means

    def _student_us(self, scored: Lane) -> dict[int, float]:
        if scored.matched:
            below_us = math.inf if scored.lowest_us is None else scored.outside_us - scored.lowest_us
            return self.block_us(STUDENT, "inside", below_us)
        outside = self.block_us(STUDENT, "outside")
        if not scored.claimed or not clocks.counts_high_claims(scored):
            return outside
        inside = self.block_us(STUDENT, "inside")
        return {block: max(outside[block], inside[block]) for block in outside}

    def compare(self) -> Comparison:
        student = self.timing(STUDENT)
        clock = reference_clock(student)
        references = tuple(self.timing(n, clock) for n in self._samples if n not in (STUDENT, NULL))
        fastest = min(references, key=lambda one: one.score_us)
        ours, theirs = self._student_us(student.scored_lane), self.block_us(fastest.name, clock)
        flags = set(student.flags)
        single_us = clocks.single_score_us(student, fastest)
        if single_us is not None:
            flags.add(clocks.CHEAPER_IN_BATCHES)
            ours = {block: us * single_us / student.score_us for block, us in ours.items()}
            student = student.model_copy(update={"score_us": single_us})
        if clock == "outside" and any(map(self._is_bound, (STUDENT, fastest.name))):
            flags.add(UNRESOLVED)
        logs = tuple(math.log(theirs[block] / ours[block]) for block in sorted(ours))
        return Comparison(student, references, logs, fastest, frozenset(flags))

    def _is_bound(self, name: str) -> bool:
        """Whether more than half of a reveal is its constant, so that the figure is only a bound."""
        samples = self._samples[name][SCORED]
        most = (1 - clocks.LEAST_SHARE) * _raw_us(name, samples)
        return samples.mean_constant_us(self.constants[SCORED]) > most


def _raw_us(name: str, samples: Samples) -> float:
    """Per call, the constant included; copying a reference's results is no part of it."""
    return samples.mean_outside_us - (samples.mean_aside_us if name != STUDENT else 0.0)


def reference_clock(student: ContenderTiming) -> ReferenceClock:
    if student.scored_lane.matched:
        return "inside"
    # Contradicting the clock must not help by what it does to the other side.
    return "best" if clocks.MISMATCH in student.flags else "outside"
