"""What all comparisons of a run share: its plan, its scores, and what was not measured.

A leaked task has no score here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness import stats
from harness.records import Arm, RunConfig
from harness.report.metrics import Metric, metrics_for
from harness.report.planning import least_families
from harness.report.records import ArmSummary, Gap
from harness.report.scoring import Score

_ALPHA: Final = 0.05


def look_of(alpha: float) -> int | None:
    """k where alpha is 0.05 / 2^k with k >= 1; None for the plain 0.05 and for what is no such level."""
    k = round(math.log2(_ALPHA / alpha))
    return k if k >= 1 and math.isclose(alpha, _ALPHA / 2**k) else None


@dataclass(frozen=True)
class Study:
    """What all comparisons of a run share."""

    config: RunConfig
    scores: Mapping[tuple[str, str], Sequence[Score]]
    """By model and arm, without leaked tasks."""
    by_turn: Mapping[tuple[str, str], Sequence[Sequence[Score]]]
    """The same after every turn; empty where the run has one turn."""
    leaked: Mapping[str, str]
    """Task left out to where a skill repeats its reference."""
    summaries: Mapping[tuple[str, str], ArmSummary]
    build_gap: Gap | None
    check_gap: Gap | None

    @property
    def confidence(self) -> float:
        """Of every interval of a lift."""
        return 1.0 - self.config.alpha

    @property
    def minimum_families(self) -> int:
        """Below, the decision is inconclusive: too few to infer, or too few for p to be at most alpha."""
        return least_families(self.config.alpha)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """In the order in which they are shown."""
        return metrics_for(self.config.repeats)

    @property
    def primary(self) -> Metric:
        """The metric that the decision rests on."""
        return next(m for m in self.metrics if m.name == self.config.metric)

    def gap(self, metric: str) -> Gap | None:
        """Why a metric was not measured."""
        return self.build_gap if metric == "compiles" else self.check_gap

    def lift(self, metric: Metric, model: str, treatment: Arm, control: Arm) -> stats.Lift | None:
        """None when the metric was not measured in this run."""
        if self.gap(metric.name):
            return None
        return metric.lift(self.scores[model, treatment.id], self.scores[model, control.id], self.confidence)
