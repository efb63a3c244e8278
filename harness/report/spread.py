"""What a plan rests on: the spread between families and the tokens of a trial, assumed or from a run.

What is assumed says so; tokens and dollars that are unknown are None.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import variance
from typing import Final

from harness.errors import UsageError
from harness.models.prices import Price
from harness.records import RunRecord, TrialRecord
from harness.report.detectable import ASSUMED_SD
from harness.report.facts import leaked_tasks
from harness.report.metrics import Metric, metrics_for
from harness.report.scoring import Score, score

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
    """Mean tokens and dollars of a trial without and with a skill (or a placebo of its length)."""

    input_tokens: tuple[float, float] | None
    output_tokens: tuple[float, float] | None
    cost_usd: tuple[float, float] | None
    """As a run paid them."""
    source: str

    def tokens(self, without: int, with_: int) -> float | None:
        """Of so many trials without and with a skill."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        each = [sum(pair) for pair in zip(self.input_tokens, self.output_tokens, strict=True)]
        return without * each[0] + with_ * each[1]

    def dollars(self, without: int, with_: int, price: Price | None) -> float | None:
        """The same at a price, nothing from a cache; without one as the run paid."""
        each = self.cost_usd
        if price is not None:
            each = None
            if self.input_tokens is not None and self.output_tokens is not None:
                fresh, made = price.input_usd_per_mtok / 1e6, price.output_usd_per_mtok / 1e6
                first, second = zip(self.input_tokens, self.output_tokens, strict=True)
                each = first[0] * fresh + first[1] * made, second[0] * fresh + second[1] * made
        return None if each is None else without * each[0] + with_ * each[1]


ASSUMED_USAGE: Final = Usage(
    (_PROMPT_TOKENS, _PROMPT_TOKENS + _SKILL_TOKENS),
    (_REPLY_TOKENS, _REPLY_TOKENS),
    None,
    "assumed: 1.6k of prompt, 3.6k of skill, 4.5k of reply (the demo's)",
)


def assumed_spread(metric: str) -> Spread:
    """Where there is no earlier run."""
    return Spread(ASSUMED_SD[metric], "assumed, see docs/statistics.md")


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
        seen = variance(difference for _, difference in lift.per_family) if lift.n_families > 1 else 0.0
        if seen > 1e-18:  # rounding
            variances.append(seen)
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

    return Usage(
        both([mean([s.usage.input_tokens for s in side]) for side in sides]),
        both([mean([s.usage.output_tokens for s in side]) for side in sides]),
        both([mean([s.usage.cost_usd for s in side]) for side in sides]),
        f"as in {run.run_id}",
    )
