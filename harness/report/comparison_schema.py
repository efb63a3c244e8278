"""Records of a comparison: one model with a skill against one control.

Every figure rests on tasks with a scored trial in both arms and without a leak. None is unknown, not
computable or not measured, never 0; nothing is rounded.
"""

from __future__ import annotations

from typing import Literal

from harness import stats
from harness.outcome import Verdict
from harness.records import Metric, Record

Unit = Literal["share", "ratio"]
"""A `share` is a fraction, and its lift a difference (0 = no change). A `ratio` is a speedup, and its lift a
ratio (1 = no change)."""
MetricName = Literal[
    "compiles",
    "correct_emulated",
    "correct",
    "deployed",
    "speedup_both_correct",
    "pass_at_1",
    "pass_at_k",
    "pass_hat_k",
]
DecisionName = Literal["helps", "hurts", "inconclusive"]


class Bounded(Record):
    """Something with a confidence interval; both ends are None where there is no interval."""

    low: float | None
    high: float | None


def ends(interval: stats.Interval | None) -> dict[str, float | None]:
    """The fields of a Bounded."""
    return {"low": interval.low, "high": interval.high} if interval else {"low": None, "high": None}


class Rate(Bounded):
    """A share of trials with its Wilson 95 % interval, which takes trials as independent."""

    count: int
    n: int

    @property
    def share(self) -> float | None:
        return self.count / self.n if self.n else None


class Effect(Bounded):
    """One quantity in both arms: means over families of task means, and the paired lift.

    The interval inverts the sign-flip test by family; None below 6 families and where no family differs.
    """

    control: float | None
    treatment: float | None
    lift: float | None


class TaskLift(Record):
    """The difference of one task."""

    task: str
    lift: float


class FamilyLift(Record):
    """The difference of one family."""

    family: str
    lift: float
    tasks: tuple[TaskLift, ...]


class MetricEffect(Effect):
    """One metric in both arms, or in two runs."""

    metric: MetricName
    label: str
    unit: Unit
    p_value: float | None
    n_families: int
    n_different: int
    n_tasks: int
    n_dropped_tasks: int
    not_measured: str | None


class MetricRow(MetricEffect):
    """One metric in one comparison."""

    role: Literal["primary", "secondary", "descriptive"]
    """Secondary p values are Holm-adjusted together; descriptive rows are not tested."""
    p_holm: float | None
    """Of secondary rows only."""
    per_family: tuple[FamilyLift, ...]


class KnownEffect(Effect):
    """An effect of which only the interval may be missing."""

    control: float
    treatment: float
    lift: float


class FastPoint(KnownEffect):
    """Share of kernels that are correct and faster than a threshold."""

    threshold: float


class KernelBenchPoint(Record):
    """fast_p at one threshold by KernelBench's own rules: plain means over trials, times as claimed."""

    threshold: float
    control: float
    treatment: float
    ours: FastPoint | None = None
    """By our rules over the same trials; None without a problem that has trials in both arms."""


class PassLift(KnownEffect):
    """pass@k or pass^k."""

    estimator: Literal["pass@k", "pass^k"]
    k: int
    n_tasks: int


class TurnPoint(Effect):
    """The primary metric after so many turns; a trial that ended earlier keeps its result."""

    turn: int
    control_tokens: float | None
    treatment_tokens: float | None
    control_cost_usd: float | None
    treatment_cost_usd: float | None
    """Per trial, of all turns so far."""
    lift_per_usd: float | None
    """Points (or per cent of a ratio) per extra dollar; None without an extra cost."""


class ErrorClass(Bounded):
    """How often trials end in one class of error; the difference is the paired lift by family."""

    group: Literal["cause", "first build error"]
    name: str
    control: Rate
    treatment: Rate
    difference: float | None
    p_value: float | None
    p_holm: float | None
    n_families: int
    change: Literal["removed", "introduced", "fewer", "more", "as many"]
    """Removed or introduced only where p_holm is at most alpha."""


class Conclusion(Record):
    """The decision about a skill."""

    decision: DecisionName
    metric: Metric
    reason: str
    p_adjusted: float | None
    """Holm-adjusted over the comparisons with the same kind of control; None when there is only one."""
    alpha: float = 0.05
    look: int | None = None
    """k where alpha is 0.05 / 2^k: the k-th time that this skill's lineage is tested on these tasks."""


class Costs(Record):
    """Mean tokens and dollars; a value is None where one reply does not report it."""

    input_tokens: float | None
    output_tokens: float | None
    cost_usd: float | None

    @property
    def tokens(self) -> float | None:
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


class Spending(Costs):
    """What the treatment costs more than the control per trial: means over families of task means."""

    extra_correct: float | None
    """Additional correct kernels per trial; None where correctness was not measured."""
    extra_correct_sure: bool
    cost_usd_per_extra_correct: float | None
    tokens_per_extra_correct: float | None
    """None where unknown, and where there is no additional correct kernel."""
    cost_usd_per_extra_correct_low: float | None = None
    cost_usd_per_extra_correct_high: float | None = None
    tokens_per_extra_correct_low: float | None = None
    tokens_per_extra_correct_high: float | None = None
    """Inverted sign-flip test by family."""
    per_extra_correct_unbounded: bool = False
    """The interval of `extra_correct` includes 0, so a price has no finite interval."""


class Transition(Record):
    """How often a trial has one verdict in the control arm and another in the treatment arm."""

    control: Verdict
    treatment: Verdict
    share: float


class Movement(Record):
    """Trials that change from one verdict to another, net of those that change back."""

    before: Verdict
    after: Verdict
    net: float
    there: float
    back: float
    words: str


class Transitions(Record):
    """The expected joint distribution of verdicts in both arms.

    Repeats are exchangeable, so within a task every control repeat is paired with every treatment repeat;
    tasks are averaged in families, then families. So the column sum of `correct` minus its row sum is the
    lift in correctness.
    """

    n_tasks: int
    verdicts: tuple[Verdict, ...]
    cells: tuple[Transition, ...]
    movements: tuple[Movement, ...]

    def share(self, control: Verdict, treatment: Verdict) -> float:
        found = (c.share for c in self.cells if (c.control, c.treatment) == (control, treatment))
        return next(found, 0.0)


class Detectable(Record):
    """What a study can detect: from its plan, or afterwards from the observed spread."""

    n_families: int
    sd: float
    effect: float | None
    """A ratio for deployed, else a fraction; None with too few families for any decision."""
    statement: str


class Comparison(Record):
    """One model, with_skill against one control."""

    model: str
    treatment: str
    control: str
    placebo: str | None
    label: str
    control_label: str
    rows: tuple[MetricRow, ...]
    fast_p: tuple[FastPoint, ...]
    kernelbench_fast_p: tuple[KernelBenchPoint, ...] = ()
    placebo_row: MetricRow | None
    infra_p: float
    """Fisher's exact test of equal shares lost to infra in both arms."""
    conclusion: Conclusion
    spending: Spending | None = None
    observed: Detectable | None = None
    transitions: Transitions | None = None
    error_classes: tuple[ErrorClass, ...] = ()
    passes: tuple[PassLift, ...] = ()
    turns: tuple[TurnPoint, ...] = ()
    caveats: tuple[str, ...]

    def row(self, metric: MetricName) -> MetricRow:
        return next(row for row in self.rows if row.metric == metric)

    @property
    def primary(self) -> MetricRow:
        return self.row(self.conclusion.metric)


class MatrixCell(Bounded):
    """One model with one skill or combination."""

    arm: str
    decision: DecisionName
    lift: float | None


class MatrixRow(Record):
    """One model, with a cell per column of the matrix."""

    model: str
    cells: tuple[MatrixCell, ...]


class Matrix(Record):
    """Which skills help which models: decisions on the primary metric against one kind of control."""

    control_label: str
    unit: Unit
    columns: tuple[str, ...]
    rows: tuple[MatrixRow, ...]
