"""What a report says about one model with a skill against one control.

Every figure rests on tasks with a scored trial in both arms and without a leak.
"""

from __future__ import annotations

from typing import Literal

from harness.outcome import Verdict
from harness.records import Record
from harness.report.records.arm import Rate
from harness.report.records.lift import FastPoint, KernelBenchPoint, MetricRow, PassLift, TurnPoint
from harness.report.records.run import Detectable, MetricName, Unit


class Conclusion(Record):
    """The decision about a skill."""

    decision: Literal["helps", "hurts", "inconclusive"]
    metric: Literal["deployed", "correct", "compiles"]
    reason: str
    p_adjusted: float | None
    """Holm-adjusted over the comparisons with the same kind of control; None when there is only one."""
    alpha: float = 0.05
    """What p was held against."""
    look: int | None = None
    """k where alpha is 0.05 / 2^k: the k-th time that this skill's lineage looked at these tasks."""


class Spending(Record):
    """What the treatment costs more than the control, over the tasks of the comparison.

    Means over families of task means, as the lift. None is unknown: one reply without a count is enough.
    """

    input_tokens: float | None
    output_tokens: float | None
    cost_usd: float | None
    """Treatment minus control per trial; a trial may hold several replies."""
    extra_correct: float | None
    """Additional correct kernels per trial; None where correctness was not measured."""
    extra_correct_sure: bool
    """The sign-flip test of `extra_correct` by family is at most the run's alpha."""
    cost_usd_per_extra_correct: float | None
    tokens_per_extra_correct: float | None
    """None where unknown, and where there is no additional correct kernel."""
    cost_usd_per_extra_correct_low: float | None = None
    cost_usd_per_extra_correct_high: float | None = None
    tokens_per_extra_correct_low: float | None = None
    tokens_per_extra_correct_high: float | None = None
    """Inverted sign-flip test by family, holds 1 - alpha; None without a price, below 6 families, where every
    family has one price, or without an end."""
    per_extra_correct_unbounded: bool = False
    """There is a price, and the interval of `extra_correct` includes 0: no finite interval holds it."""

    @property
    def tokens(self) -> float | None:
        """Input and output together."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


class Transition(Record):
    """How often a trial has one verdict in the control arm and another in the treatment arm."""

    control: Verdict
    treatment: Verdict
    share: float


class Movement(Record):
    """Trials that change from one verdict to a better or worse one, net of those that change back."""

    before: Verdict
    after: Verdict
    net: float
    """Share of trials; above 0."""
    there: float
    back: float
    words: str
    """Such as `build_failed -> correct: 14% of trials`; the share is the net one."""


class Transitions(Record):
    """The expected joint distribution of verdicts in both arms.

    Repeats are exchangeable, so within a task every control repeat is paired with every treatment
    repeat; then tasks are averaged in families, and families, as for the lift. So the column sum of
    `correct` minus its row sum is the lift in correctness.
    """

    n_tasks: int
    verdicts: tuple[Verdict, ...]
    """Those that occur, best first."""
    cells: tuple[Transition, ...]
    """Only shares above 0."""
    movements: tuple[Movement, ...]
    """Where lift comes from: the largest net changes first."""

    def share(self, control: Verdict, treatment: Verdict) -> float:
        """One cell."""
        found = (c.share for c in self.cells if (c.control, c.treatment) == (control, treatment))
        return next(found, 0.0)


class ErrorClass(Record):
    """How often trials end in one class of error in both arms.

    Rates count trials; the difference is the paired lift by family, p its sign-flip test, adjusted by
    Holm over all classes of the comparison.
    """

    group: Literal["cause", "first build error"]
    name: str
    """A Cause, or the DiagnosticKind of a failed build's first error."""
    control: Rate
    treatment: Rate
    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None
    p_holm: float | None
    n_families: int
    change: Literal["removed", "introduced", "fewer", "more", "as many"]
    """Removed or introduced only where p_holm is at most alpha."""


class Comparison(Record):
    """One model, with_skill against one control."""

    model: str
    treatment: str
    control: str
    placebo: str | None
    """Arm ids."""
    label: str
    """The skill, for people."""
    control_label: str
    rows: tuple[MetricRow, ...]
    fast_p: tuple[FastPoint, ...]
    kernelbench_fast_p: tuple[KernelBenchPoint, ...] = ()
    """Beside fast_p, where tasks are KernelBench's."""
    placebo_row: MetricRow | None
    """with_skill minus placebo on the primary metric."""
    infra_p: float
    """Fisher's exact test of equal shares lost to infra in both arms."""
    conclusion: Conclusion
    spending: Spending | None = None
    """None without a pair of trials."""
    observed: Detectable | None = None
    """After the fact, with the spread that the primary metric showed between families."""
    transitions: Transitions | None = None
    error_classes: tuple[ErrorClass, ...] = ()
    """Significant ones first, then by the size of the difference."""
    passes: tuple[PassLift, ...] = ()
    turns: tuple[TurnPoint, ...] = ()
    """Only for runs of more than one turn; the decision rests on the last."""
    caveats: tuple[str, ...]

    def row(self, metric: MetricName) -> MetricRow:
        """The row of a metric."""
        return next(row for row in self.rows if row.metric == metric)


class MatrixCell(Record):
    """One model with one skill or combination."""

    arm: str
    decision: Literal["helps", "hurts", "inconclusive"]
    lift: float | None
    low: float | None
    high: float | None


class MatrixRow(Record):
    """One model."""

    model: str
    cells: tuple[MatrixCell, ...]
    """In the order of the matrix's columns."""


class Matrix(Record):
    """Which skills help which models: decisions on the primary metric against one kind of control."""

    control_label: str
    unit: Unit
    columns: tuple[str, ...]
    """Labels of the treatment arms, such as `a + b`."""
    rows: tuple[MatrixRow, ...]
