"""How large a study must be: families, tasks, replies, tokens and dollars for an effect to be found.

Owns: the spread that a plan rests on, and the table over families. Does not own: the formula
(harness.stats) or options (cli/plan_command.py). Invariant: what is assumed says so; tokens and dollars
that are unknown are None.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import variance
from typing import Final, Literal

from harness import stats
from harness.errors import UsageError
from harness.models.prices import Price
from harness.records import Record, RunRecord, TrialRecord
from harness.report.detectable import ASSUMED_SD, MINIMUM_FAMILIES
from harness.report.facts import leaked_tasks
from harness.report.metrics import Metric, metrics_for
from harness.report.scoring import Score, score

FAMILIES: Final = (6, 8, 10, 12, 15, 20, 25, 30, 40, 50)
# Tokens without a run to learn them from: the mean prompt of the shipped suite, the shipped CUDA skill, and
# the replies recorded in demo/, at 4 characters a token.
_PROMPT_TOKENS, _SKILL_TOKENS, _REPLY_TOKENS = 1_600, 3_600, 4_500


@dataclass(frozen=True)
class Spread:
    """The sd between families that a plan rests on, for tasks of so many runs."""

    sd: float
    source: str
    noise_variance: float | None = None
    """How much of sd^2 is chance between the runs of a task; None: unknown, so more runs change nothing."""
    repeats: int = 1

    def at(self, repeats: int) -> float:
        """sd with another number of runs per task: only the chance between runs shrinks."""
        if self.noise_variance is None:
            return self.sd
        rest = max(0.0, self.sd**2 - self.noise_variance)
        return math.sqrt(rest + self.noise_variance * self.repeats / repeats)


@dataclass(frozen=True)
class Usage:
    """Mean tokens of a trial in each arm; cost of both arms' trials together where a run knew it."""

    input_tokens: tuple[float, float] | None
    output_tokens: tuple[float, float] | None
    pair_usd: float | None
    source: str

    @property
    def pair_tokens(self) -> float | None:
        """One trial in each arm."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return sum(self.input_tokens) + sum(self.output_tokens)

    def priced(self, price: Price | None) -> float | None:
        """Dollars of one trial in each arm; nothing is taken to come from a cache."""
        if price is None:
            return self.pair_usd
        if self.input_tokens is None or self.output_tokens is None:
            return None
        fresh = sum(self.input_tokens) * price.input_usd_per_mtok
        return (fresh + sum(self.output_tokens) * price.output_usd_per_mtok) / 1e6


ASSUMED_USAGE: Final = Usage(
    (_PROMPT_TOKENS, _PROMPT_TOKENS + _SKILL_TOKENS),
    (_REPLY_TOKENS, _REPLY_TOKENS),
    None,
    "assumed: 1.6k of prompt, 3.6k of skill, 4.5k of reply (the demo's)",
)


def assumed_spread(metric: str) -> Spread:
    """Where there is no earlier run."""
    return Spread(ASSUMED_SD[metric], "assumed, see docs/statistics.md")


class SizeRow(Record):
    """A study of so many families."""

    families: int
    tasks: int
    replies: int
    tokens: float | None
    cost_usd: float | None
    smallest_effect: float | None
    """Ratio - 1 or a difference of shares; None where nothing is detected."""
    power: float | None
    """For the effect that was asked for."""


class SizePlan(Record):
    """What a study needs to find an effect."""

    metric: Literal["deployed", "correct", "compiles"]
    effect: float | None
    """As asked: 0.15 is x1.15 in deployed, 15 points of a share."""
    power: float
    alpha: float
    runs: int
    sd: float
    sd_source: str
    runs_count: bool
    """sd was taken to another number of runs; else it is the same for any."""
    usage_source: str
    tasks_per_family: float
    suite_families: int
    suite_tasks: int
    needed: SizeRow | None
    """The fewest families for the effect; None where no effect was asked for."""
    asked: SizeRow | None
    """The families that were asked for."""
    suite: SizeRow
    rows: tuple[SizeRow, ...]


def scale(metric: str, effect: float) -> float:
    """From the reader's effect to the scale of inference."""
    return math.log1p(effect) if metric == "deployed" else effect


def shown(metric: str, effect: float | None) -> float | None:
    """Back; a difference of shares above 1 does not exist."""
    if effect is None or (metric != "deployed" and effect > 1.0):
        return None
    return math.expm1(effect) if metric == "deployed" else effect


@dataclass(frozen=True)
class Sizing:
    """Everything that a plan rests on but the number of families."""

    metric: Literal["deployed", "correct", "compiles"]
    effect: float | None
    power: float
    alpha: float
    runs: int
    spread: Spread
    usage: Usage
    price: Price | None
    suite_families: int
    suite_tasks: int

    @property
    def _sd(self) -> float:
        return self.spread.at(self.runs)

    @property
    def _least(self) -> int:
        return max(MINIMUM_FAMILIES, stats.fewest_families(self.alpha))

    def row(self, families: int) -> SizeRow:
        """A study of so many families; its tasks in the shipped suite's proportion."""
        tasks = round(families * self.suite_tasks / self.suite_families)
        pairs = tasks * self.runs
        tokens, dollars = self.usage.pair_tokens, self.usage.priced(self.price)
        enough = families >= self._least
        smallest = stats.smallest_effect(self._sd, families, self.power, self.alpha) if enough else None
        power = None
        if self.effect is not None:
            wanted = scale(self.metric, self.effect)
            power = stats.power_to_detect(wanted, self._sd, families, self.alpha) if enough else 0.0
        return SizeRow(
            families=families,
            tasks=tasks,
            replies=2 * pairs,
            tokens=None if tokens is None else pairs * tokens,
            cost_usd=None if dollars is None else pairs * dollars,
            smallest_effect=shown(self.metric, smallest),
            power=power,
        )

    def plan(self, families: int | None) -> SizePlan:
        """The whole plan; families: how many are at hand, where the user said."""
        needed = None
        if self.effect is not None:
            wanted = scale(self.metric, self.effect)
            count = stats.units_needed(wanted, self._sd, self.power, self.alpha)
            needed = self.row(max(self._least, count))
        return SizePlan(
            metric=self.metric,
            effect=self.effect,
            power=self.power,
            alpha=self.alpha,
            runs=self.runs,
            sd=self._sd,
            sd_source=self.spread.source,
            runs_count=self.spread.noise_variance is not None,
            usage_source=self.usage.source,
            tasks_per_family=self.suite_tasks / self.suite_families,
            suite_families=self.suite_families,
            suite_tasks=self.suite_tasks,
            needed=needed,
            asked=None if families is None else self.row(families),
            suite=self.row(self.suite_families),
            rows=tuple(self.row(count) for count in FAMILIES),
        )


def _scores(run: RunRecord, trials: Sequence[TrialRecord]) -> dict[tuple[str, str], list[Score]]:
    leaked = leaked_tasks(run)
    found: dict[tuple[str, str], list[Score]] = defaultdict(list)
    for trial in trials:
        known = trial.key.task in run.lock.families and trial.key.task not in leaked
        if known and (made := score(trial, run.lock.families)):
            found[made.model, made.arm].append(made)
    return found


def _contrasts(
    run: RunRecord, scores: Mapping[tuple[str, str], list[Score]]
) -> Iterable[tuple[list[Score], list[Score]]]:
    """Treatment and control scores, by model and skill."""
    for model in run.config.models:
        for treatment in run.config.arms:
            for control in run.config.arms:
                if (treatment.kind, control.kind) == ("with_skill", "without_skill"):
                    yield scores.get((model.name, treatment.id), []), scores.get((model.name, control.id), [])


def spread_of(run: RunRecord, trials: Sequence[TrialRecord], metric: str) -> Spread:
    """The sd between families that a run showed, pooled over models and skills.

    Raises UsageError where it shows none.
    """
    chosen = next(m for m in metrics_for(1) if m.name == metric)
    variances: list[float] = []
    noises: list[float | None] = []
    for treatment, control in _contrasts(run, _scores(run, trials)):
        lift = chosen.lift(treatment, control, tested=False)
        if lift.interval is not None:
            variances.append(variance(difference for _, difference in lift.per_family))
            noises.append(_noise(chosen, treatment, control))
    if not variances:
        raise UsageError(
            f"run {run.run_id} shows no spread of {metric} between families: it needs two families or more, "
            f"measured with and without a skill; name another run, or give --sd"
        )
    known = [noise for noise in noises if noise is not None]
    noise = math.fsum(known) / len(known) if len(known) == len(noises) else None
    sd = math.sqrt(math.fsum(variances) / len(variances))
    return Spread(sd, f"seen between the families of {run.run_id}", noise, run.config.repeats)


def _noise(metric: Metric, treatment: Sequence[Score], control: Sequence[Score]) -> float | None:
    """Variance of a family's difference that comes from chance between runs; None with single runs."""
    tasks: dict[tuple[str, str], list[list[float]]] = defaultdict(lambda: [[], []])
    for side, scores in enumerate((treatment, control)):
        for family, task, value in metric.values(scores):
            tasks[family, task][side].append(value)
    families: dict[str, list[float]] = defaultdict(list)
    for (family, _), sides in tasks.items():
        if not all(sides):
            continue
        if any(len(values) < 2 for values in sides):
            return None
        families[family].append(sum(variance(values) / len(values) for values in sides))
    if not families:
        return None
    return math.fsum(math.fsum(v) / len(v) ** 2 for v in families.values()) / len(families)


def usage_of_run(run: RunRecord, trials: Sequence[TrialRecord]) -> Usage:
    """Mean tokens and dollars of a trial without and with a skill, as a run spent them."""
    kinds = {arm.id: arm.kind for arm in run.config.arms}
    sides: list[list[Score]] = [[], []]
    for (_, arm), scores in _scores(run, trials).items():
        if kinds.get(arm) in ("without_skill", "with_skill"):
            sides[kinds[arm] == "with_skill"] += scores

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return math.fsum(known) / len(known) if values and len(known) == len(values) else None

    def both(values: Sequence[float | None]) -> tuple[float, float] | None:
        first, second = values
        return None if first is None or second is None else (first, second)

    dollars = both([mean([s.usage.cost_usd for s in side]) for side in sides])
    return Usage(
        both([mean([s.usage.input_tokens for s in side]) for side in sides]),
        both([mean([s.usage.output_tokens for s in side]) for side in sides]),
        None if dollars is None else sum(dollars),
        f"as in {run.run_id}",
    )
