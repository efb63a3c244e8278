"""How large a study must be to find an effect, and what a study of a given size can find.

All figures come from closed forms: the t approximation to the sign-flip test, with the spread of families
split into what families and what single replies contribute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev
from typing import Final

from harness import stats
from harness.models.prices import Price
from harness.records import Metric, Record, RunRecord, TrialRecord
from harness.report.comparison_schema import Costs, Detectable
from harness.report.figures import plural
from harness.report.metrics import total_usage
from harness.report.spread import NO_SPREAD, OBSERVED, Spread, arms_of_kind, scores_by_arm

TABLE_FAMILIES: Final = (6, 8, 10, 12, 15, 20, 25, 30, 40, 50)
GOALS: Final[tuple[tuple[Metric, float], ...]] = (("compiles", 0.2), ("correct", 0.1), ("deployed", 0.15))
"""Effects that `liftbench plan` sizes a study for when none is named."""
GOAL_REPLIES: Final = (1, 2, 5)
_POWER: Final = 0.8


def least_families(alpha: float) -> int:
    """Below this many families every decision is inconclusive."""
    return max(stats.LEAST_FAMILIES, stats.fewest_families(alpha))


def detected(metric: str, lift: stats.Lift, alpha: float) -> Detectable | None:
    """What a study could detect given the spread between its families; None where there is none."""
    if lift.n_families < 2:
        return None
    sd = stdev(difference for _, difference in lift.per_family)
    return None if sd <= NO_SPREAD else _detectable(metric, lift.n_families, alpha, sd, seen=True)


def detectable(metric: str, families: Sequence[str], repeats: int, alpha: float = 0.05) -> Detectable:
    """What a plan can detect on a metric; families: of each task."""
    n_families, spread, effect = len(set(families)), OBSERVED[metric], None
    replies = repeats * max(1, len(families)) / max(1, n_families)
    if n_families >= least_families(alpha):
        effect = spread.smallest_effect(n_families, replies, _POWER, alpha, None)
    sd = spread.sd(replies, min(effect or 0.0, 1.0))
    return _detectable(metric, n_families, alpha, sd, seen=False)


def _detectable(metric: str, n_families: int, alpha: float, sd: float, *, seen: bool) -> Detectable:
    source, lead = ("observed", "After the fact: with") if seen else ("planned", "With")
    spread = f"{source} sd {sd:.2g} of the {'log ratio' if metric == 'deployed' else 'share'}"
    lead = f"{lead} {plural(n_families, 'family')} ({spread})"
    least = least_families(alpha)
    if n_families < least:
        statement = f"{lead} nothing can be decided: at least {least} families are needed."
        return Detectable(n_families=n_families, sd=sd, effect=None, statement=statement)
    effect = stats.smallest_effect(sd, n_families, alpha=alpha) or 0.0
    level = "" if alpha == 0.05 else f" at alpha {alpha:g}"
    if metric == "deployed":
        effect = math.exp(effect)
        size = f"a true lift in deployed of x{effect:.2f}"
    elif effect > 1.0:
        size = f"no lift in {metric}"
    else:
        size = f"a true lift in {metric} of {100 * effect:.0f} points"
    statement = f"{lead} {size} is detected with 80% power{level}."
    return Detectable(n_families=n_families, sd=sd, effect=effect, statement=statement)


class TrialCost(Costs):
    """Costs of a trial in one arm; cost_usd is what an earlier run paid."""

    def dollars(self, price: Price | None) -> float | None:
        """At a list price without caching, or as the earlier run paid."""
        if price is None or self.input_tokens is None or self.output_tokens is None:
            return self.cost_usd if price is None else None
        made = self.input_tokens * price.input_usd_per_mtok + self.output_tokens * price.output_usd_per_mtok
        return made / 1e6


ASSUMED_COSTS: Final = (
    TrialCost(input_tokens=1_600, output_tokens=4_500, cost_usd=None),
    TrialCost(input_tokens=5_200, output_tokens=4_500, cost_usd=None),
)
"""Without and with a skill, from the demo: 1.6k of prompt, 3.6k of skill, 4.5k of reply."""


class StudySize(Record):
    """A study of so many families, what it costs and what it finds."""

    families: int
    tasks: int
    trials: int
    tokens: float | None
    cost_usd: float | None
    smallest_effect: float | None
    """Ratio - 1 or a difference of shares; None where nothing can be detected."""
    power: float | None


class StudyDesign(Record):
    """Everything that a plan rests on except the number of families."""

    metric: Metric
    effect: float | None
    """As requested: 0.15 is x1.15 in deployed, 15 points of a share."""
    power: float
    alpha: float
    runs: int
    skills: int
    models: int
    spread: Spread
    baseline: float | None = None
    """Of a share, without a skill; None: where replies scatter most."""
    costs: tuple[TrialCost, TrialCost]
    costs_source: str
    prices: tuple[Price | None, ...]
    """One per model; None is unknown, or as the earlier run paid."""
    suite_families: int
    suite_tasks: int

    @property
    def level(self) -> float:
        """The level of the first of several decisions under Holm."""
        return self.alpha / (self.skills * self.models)

    @property
    def replies(self) -> float:
        """Replies per family and arm, with tasks in the suite's proportion."""
        return self.runs * self.suite_tasks / self.suite_families

    @property
    def sd(self) -> float:
        """Between families, for the requested effect."""
        return self.spread.sd(self.replies, self.effect or 0.0, self.baseline)

    def size(self, families: int) -> StudySize:
        """A study of so many families, with tasks in the suite's proportion."""
        tasks = round(families * self.suite_tasks / self.suite_families)
        counts = tasks * self.runs, tasks * self.runs * self.skills
        tokens = _total(counts, [cost.tokens for cost in self.costs])
        dollars = [_total(counts, [cost.dollars(price) for cost in self.costs]) for price in self.prices]
        known = [amount for amount in dollars if amount is not None]
        found, power = None, None if self.effect is None else 0.0
        if families >= least_families(self.level):
            found = self.spread.smallest_effect(families, self.replies, self.power, self.level, self.baseline)
            if self.effect is not None:
                power = stats.power_to_detect(self._scaled_effect, self.sd, families, self.level)
        if found is not None and self.metric == "deployed":
            found = math.expm1(found)
        elif found is not None and found > 1.0 - (self.baseline or 0.0):
            found = None
        return StudySize(
            families=families,
            tasks=tasks,
            trials=sum(counts) * self.models,
            tokens=None if tokens is None else tokens * self.models,
            cost_usd=math.fsum(known) if len(known) == len(dollars) else None,
            smallest_effect=found,
            power=power,
        )

    @property
    def _scaled_effect(self) -> float:
        effect = self.effect or 0.0
        return math.log1p(effect) if self.metric == "deployed" else effect

    def plan(self, families: int | None) -> StudyPlan:
        """The whole plan; families: how many the user has."""
        needed = least = None
        if self.effect is not None:
            needed = self.size(self._families_for(self.sd))
            least = self._families_for(self.spread.least_sd(self.replies, self.effect, self.baseline))
        return StudyPlan(
            design=self,
            needed=needed,
            least_families=least,
            asked=None if families is None else self.size(families),
            suite=self.size(self.suite_families),
            rows=tuple(self.size(count) for count in TABLE_FAMILIES),
        )

    def _families_for(self, sd: float) -> int:
        least = least_families(self.level)
        if sd == 0.0:
            return least
        return max(least, stats.families_needed(self._scaled_effect, sd, self.power, self.level))


def _total(counts: tuple[int, int], each: Sequence[float | None]) -> float | None:
    """Of so many trials without and with a skill."""
    known = [count * one for count, one in zip(counts, each, strict=True) if one is not None]
    return sum(known) if len(known) == 2 else None


class StudyPlan(Record):
    """What a study needs to find an effect."""

    design: StudyDesign
    needed: StudySize | None
    """The smallest study that finds the requested effect."""
    least_families: int | None
    """Families that would be enough if all of the spread that is not separated came from replies."""
    asked: StudySize | None
    suite: StudySize
    rows: tuple[StudySize, ...]


def costs_of_run(run: RunRecord, trials: Sequence[TrialRecord]) -> tuple[TrialCost, TrialCost]:
    """Mean tokens and dollars of an earlier run's trials, without and with a skill."""
    scores = scores_by_arm(run, trials)

    def mean_cost(kind: str) -> TrialCost:
        arms = arms_of_kind(run, kind)
        usages = [s.usage for (_, arm), found in scores.items() if arm in arms for s in found]
        total = total_usage(usages).model_dump()
        means = {k: part / len(usages) if usages and part is not None else None for k, part in total.items()}
        return TrialCost(**means)

    return mean_cost("without_skill"), mean_cost("with_skill")
