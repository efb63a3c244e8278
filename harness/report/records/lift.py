"""Lifts of one metric, in the reader's units.

Shares and differences of shares, or ratios; nothing is rounded.
"""

from __future__ import annotations

from typing import Literal

from harness.records import Record
from harness.report.records.run import MetricName, Unit


class TaskLift(Record):
    """One task's difference: points of share as a fraction, or a ratio."""

    task: str
    lift: float


class FamilyLift(Record):
    """One family's difference."""

    family: str
    lift: float
    tasks: tuple[TaskLift, ...]


class MetricRow(Record):
    """One metric in one comparison: means over families of task means, and their difference.

    Unit `share`: fractions, lift is a difference (0 = no change). Unit `ratio`: speedups, lift is a
    ratio (1 = no change).
    """

    metric: MetricName
    label: str
    unit: Unit
    role: Literal["primary", "secondary", "descriptive"]
    """Secondary p values are Holm-adjusted together; descriptive rows are not tested."""
    control: float | None
    treatment: float | None
    lift: float | None
    low: float | None
    high: float | None
    """The inverted sign-flip test by family, holds 1 - alpha of the run; None below 6 families, and where
    no family differs."""
    p_value: float | None
    """Sign-flip test by family."""
    p_holm: float | None
    """Of secondary rows; None for the primary one, which is not adjusted."""
    n_families: int
    n_different: int
    """Families whose difference is not 0: the p value is at least 2^(1 - n_different)."""
    n_tasks: int
    n_dropped_tasks: int
    """Tasks without a value in both arms."""
    per_family: tuple[FamilyLift, ...]
    not_measured: str | None
    """Why, when this metric was not measured in this run."""


class FastPoint(Record):
    """Share correct and faster than a threshold: means over families, with the paired lift."""

    threshold: float
    control: float
    treatment: float
    lift: float
    low: float | None
    high: float | None


class KernelBenchPoint(Record):
    """One threshold of fast_p by KernelBench's own rules: plain means over trials, times as claimed."""

    threshold: float
    control: float
    treatment: float
    ours: FastPoint | None = None
    """By our rules over the same trials; None without a problem that has trials in both arms."""


class PassLift(Record):
    """pass@k or pass^k in both arms."""

    estimator: Literal["pass@k", "pass^k"]
    k: int
    control: float
    treatment: float
    lift: float
    low: float | None
    high: float | None
    n_tasks: int
    """Tasks with at least k scored replies in both arms."""


class TurnPoint(Record):
    """The primary metric after so many turns; a trial that ended before stands as it ended."""

    turn: int
    """From 1."""
    control: float | None
    treatment: float | None
    lift: float | None
    low: float | None
    high: float | None
    """In the reader's units: shares and differences, or ratios."""
    control_tokens: float | None
    treatment_tokens: float | None
    control_cost_usd: float | None
    treatment_cost_usd: float | None
    """Per trial, of all turns so far."""
    lift_per_usd: float | None
    """Points (or per cent of a ratio) per dollar that the treatment costs more; None where it costs no
    more, or where that is unknown."""
