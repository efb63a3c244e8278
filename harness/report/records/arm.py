"""What a report says about one model in one arm.

None is not measured or unknown, never 0.
"""

from __future__ import annotations

from harness.records import Record
from harness.report.records.run import Usages


class Rate(Record):
    """A share of trials with its Wilson 95 % interval; trials count as independent here."""

    count: int
    n: int
    low: float | None
    high: float | None


class FastLevel(Record):
    """Share of one arm's kernels that are correct and faster than a threshold: a mean over families."""

    threshold: float
    share: float
    low: float | None
    high: float | None
    """95 % interval by family, the inverted sign-flip test; None below 6 families."""


class PassPoint(Record):
    """pass@k and pass^k of one arm, means over families of tasks with at least k scored replies."""

    k: int
    at: float
    """Chance that at least one of k replies is correct."""
    hat: float
    """Chance that all k are."""


class ArmSummary(Record):
    """One model in one arm, on its own."""

    model: str
    arm: str
    kind: str
    label: str
    """For people: `without skill`, or the skill's name."""
    planned: int
    scored: int
    infra_trials: int
    infra_failures: int
    compiled: Rate | None
    """None when the build stage was not measured in this run."""
    correct: Rate | None
    """None when correctness was not measured in this run."""
    faster: int | None
    """Correct and distinguishably faster than the reference."""
    alike: int | None
    """Correct and not distinguishable from the reference."""
    slower: int | None
    """Correct and distinguishably slower than the reference."""
    noisy: int
    """Timed on a noisy host: counted, never ranked."""
    fast_p: tuple[float, ...] | None
    """Share of all scored trials that are correct and faster than each threshold (KernelBench's fast_p)."""
    usage: Usages
    """Of scored trials."""
    tokens_per_correct: float | None
    cost_usd_per_correct: float | None
    fast_levels: tuple[FastLevel, ...] = ()
    """fast_p by family, with its band; empty where correctness was not measured."""
    passes: tuple[PassPoint, ...] = ()
    """For k = 1 to the number of runs."""


class ReadFile(Record):
    """One file that students asked for."""

    file: str
    """`skill/path`."""
    trials: Rate
    """Trials that read it at least once, of the arm's scored trials."""
    tokens: float | None
    """Median of what reading it added to the next prompt, where a step read it alone; None: not reported."""


class Reading(Record):
    """What was read in one arm with disclosed delivery."""

    model: str
    arm: str
    label: str
    skills: tuple[ReadFile, ...]
    """By skill: how often it was triggered at all; `file` is the skill's name, tokens stay None."""
    files: tuple[ReadFile, ...]
    """Most read first."""
    tokens: float | None
    """Input and output of the replies that only asked for files, mean per scored trial."""
