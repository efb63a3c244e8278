"""How large a study must be: families, tasks, trials, tokens and dollars for an effect to be found.

What is assumed says so; tokens and dollars that are unknown are None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from harness import stats
from harness.models.prices import Price
from harness.records import Record
from harness.report.detectable import least_families
from harness.report.simulation import MOST_FAMILIES, Design, Simulation
from harness.report.spread import Spread, Usage

FAMILIES: Final = (6, 8, 10, 12, 15, 20, 25, 30, 40, 50)


class SizeRow(Record):
    """A study of so many families."""

    families: int
    tasks: int
    trials: int
    """Of all models and arms; each is one call of a student, where it takes one turn."""
    tokens: float | None
    cost_usd: float | None
    smallest_effect: float | None
    """Ratio - 1 or a difference of shares; None where nothing is detected, or where it was not looked for."""
    power: float | None
    """For the effect that was asked for, in one comparison: no other has any."""
    power_each: float | None = None
    power_all: float | None = None
    """Where every comparison has the effect: one of them is found, and all are."""


class SizePlan(Record):
    """What a study needs to find an effect."""

    metric: Literal["deployed", "correct", "compiles"]
    effect: float | None
    """As asked: 0.15 is x1.15 in deployed, 15 points of a share."""
    power: float
    alpha: float
    look: int | None
    """k where alpha is 0.05 / 2^k."""
    runs: int
    skills: int
    models: int
    placebo: bool
    simulated_studies: int | None
    """Per figure; None: the t approximation, which one comparison without a placebo has."""
    monte_carlo_error: float | None
    """Standard error of a simulated share at `power`."""
    sd: float
    sd_source: str
    runs_count: bool
    """sd was taken to another number of runs; else it is the same for any."""
    usage_source: str
    tasks_per_family: float
    suite_families: int
    suite_tasks: int
    needed: SizeRow | None
    """The families for the effect; None where no effect was asked for, or where needed_above says more."""
    needed_above: int | None
    """So many families are not enough, and more are not simulated."""
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
    look: int | None
    runs: int
    design: Design
    spread: Spread
    usage: Usage
    prices: tuple[Price | None, ...]
    """One per model; None: unknown, or as the earlier run paid."""
    suite_families: int
    suite_tasks: int

    @property
    def _sd(self) -> float:
        return self.spread.at(self.runs)

    @property
    def _wanted(self) -> float:
        """The effect in units of the sd; only where one was asked for."""
        return scale(self.metric, self.effect or 0.0) / self._sd

    @cached_property
    def _simulation(self) -> Simulation:
        return Simulation(self.design, self.alpha)

    def _power(self, families: int) -> float | None:
        if self.effect is None:
            return None
        if families < least_families(self.alpha):
            return 0.0
        if self.design.plain:
            return stats.power_to_detect(self._wanted, 1.0, families, self.alpha)
        return self._simulation.power(self._wanted, families)

    def _smallest(self, families: int) -> float | None:
        if families < least_families(self.alpha):
            return None
        if self.design.plain:
            return stats.smallest_effect(self._sd, families, self.power, self.alpha)
        found = self._simulation.smallest_effect(families, self.power)
        return None if found is None else self._sd * found

    def _needed(self) -> int | None:
        """Raises nothing; None where more than MOST_FAMILIES are needed."""
        if self.design.plain:
            count = stats.units_needed(self._wanted, 1.0, self.power, self.alpha)
            return max(least_families(self.alpha), count)
        return self._simulation.families_needed(self._wanted, self.power)

    def row(self, families: int, *, finds: bool = True, everywhere: bool = False) -> SizeRow:
        """A study of so many families; its tasks in the shipped suite's proportion.

        finds: look for the smallest effect; everywhere: the chances where every comparison has the effect.
        """
        tasks = round(families * self.suite_tasks / self.suite_families)
        without = tasks * self.runs
        with_ = without * self.design.skills * (2 if self.design.placebo else 1)
        tokens = self.usage.tokens(without, with_)
        dollars = [self.usage.dollars(without, with_, price) for price in self.prices]
        known = [amount for amount in dollars if amount is not None]
        both = None
        if everywhere and self.effect is not None and self.design.comparisons > 1:
            both = self._simulation.everywhere(self._wanted, families)
        return SizeRow(
            families=families,
            tasks=tasks,
            trials=(without + with_) * self.design.models,
            tokens=None if tokens is None else tokens * self.design.models,
            cost_usd=math.fsum(known) if len(known) == len(dollars) else None,
            smallest_effect=shown(self.metric, self._smallest(families)) if finds else None,
            power=self._power(families),
            power_each=None if both is None else both.each,
            power_all=None if both is None else both.all,
        )

    def plan(self, families: int | None, progress: Callable[[str], None] = lambda _: None) -> SizePlan:
        """The whole plan; families: how many are at hand, where the user said; progress: what is next."""
        plain = self.design.plain
        needed = None
        if self.effect is not None:
            progress("families needed")
            needed = self._needed()
        progress(f"{self.suite_families} families, the tasks here")
        suite = self.row(self.suite_families, everywhere=True)
        asked = None
        if families is not None:
            progress(f"{families} families, as asked")
            asked = self.row(families, everywhere=True)
        rows = []
        for count in FAMILIES:
            progress(f"{count} families")
            rows.append(self.row(count, finds=plain or self.effect is None))
        return SizePlan(
            metric=self.metric,
            effect=self.effect,
            power=self.power,
            alpha=self.alpha,
            look=self.look,
            runs=self.runs,
            skills=self.design.skills,
            models=self.design.models,
            placebo=self.design.placebo,
            simulated_studies=None if plain else self._simulation.studies,
            monte_carlo_error=None if plain else self._simulation.error(self.power),
            sd=self._sd,
            sd_source=self.spread.source,
            runs_count=self.spread.noise_variance is not None,
            usage_source=self.usage.source,
            tasks_per_family=self.suite_tasks / self.suite_families,
            suite_families=self.suite_families,
            suite_tasks=self.suite_tasks,
            needed=None if needed is None else self.row(needed, finds=plain, everywhere=True),
            needed_above=MOST_FAMILIES if self.effect is not None and needed is None else None,
            asked=asked,
            suite=suite,
            rows=tuple(rows),
        )
