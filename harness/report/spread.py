"""How much families differ in a recorded run: the spread that a new study is planned with."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean, stdev, variance
from typing import Final

from harness import stats
from harness.errors import UsageError
from harness.records import Record, RunRecord, TrialRecord
from harness.report.metrics import Metric, Score, Scores, leaked_tasks, metrics_for, score

NO_SPREAD: Final = 1e-9  # rounding


class Spread(Record):
    """The sd of families' differences, of the log ratio for deployed and of the share otherwise."""

    source: str
    total: float
    """As observed, with `replies` per family and arm."""
    replies: float
    between: float | None
    """Without what single replies scatter; None where one reply per task cannot show that."""
    share: bool
    """A share: its replies scatter as Bernoulli trials, whatever was observed."""

    def sd(self, replies: float, effect: float = 0.0, baseline: float | None = None) -> float:
        """With so many replies per family and arm; where nothing separates them, as if more were no gain."""
        if self.between is None:
            return self.total * math.sqrt(max(1.0, self.replies / replies))
        return stats.sd_of_differences(self.between, self._noise(self.between, effect, baseline), replies)

    def least_sd(self, replies: float, effect: float = 0.0, baseline: float | None = None) -> float:
        """The same, as if all that is not separated came from replies."""
        between = self.between or 0.0
        return stats.sd_of_differences(between, self._noise(between, effect, baseline), replies)

    def smallest_effect(
        self, families: int, replies: float, power: float, level: float, baseline: float | None
    ) -> float | None:
        """The effect that is detected with this power; None with too few families."""
        in_sds = stats.smallest_effect(1.0, families, power, level)
        if in_sds is None or not self.share:
            return None if in_sds is None else in_sds * self.sd(replies)
        return stats.smallest_share_effect(in_sds, self.between or 0.0, replies, baseline)

    def _noise(self, between: float, effect: float, baseline: float | None) -> float:
        if not self.share:
            return max(0.0, self.total**2 - between**2) * self.replies
        constant, slope, square = stats.share_noise(baseline)
        return constant + slope * effect + square * effect * effect


_CPU: Final = "observed in studies/cpu-kernel-builder: 13 families, one reply per task"
_CUDA: Final = "observed in studies/cuda-kernel-builder: 12 families, two replies per task"
_CORRECT: Final = Spread(source=_CPU, total=0.277, replies=1.0, between=0.077, share=True)
OBSERVED: Final[Mapping[str, Spread]] = {
    "deployed": Spread(source=_CPU, total=0.353, replies=1.0, between=None, share=False),
    "correct": _CORRECT,
    "correct_emulated": _CORRECT,
    "compiles": Spread(source=_CUDA, total=0.359, replies=2.0, between=0.062, share=True),
}
"""What a study is planned with by default; `correct_emulated` as `correct`."""


def scores_by_arm(run: RunRecord, trials: Sequence[TrialRecord]) -> dict[tuple[str, str], list[Score]]:
    """By model and arm, without the tasks that a skill repeats."""
    counted = run.lock.families.keys() - leaked_tasks(run).keys()
    found: dict[tuple[str, str], list[Score]] = defaultdict(list)
    for trial in trials:
        if trial.key.task in counted and (made := score(trial, run.lock.families)):
            found[trial.key.model, trial.key.arm].append(made)
    return found


def arms_of_kind(run: RunRecord, kind: str) -> list[str]:
    return [arm.id for arm in run.config.arms if arm.kind == kind]


def observed_spread(run: RunRecord, trials: Sequence[TrialRecord], metric: str) -> tuple[Spread, float]:
    """The spread in a run, pooled over models and skills, and the mean without a skill. Raises UsageError.

    Variance of families' differences = between^2 + noise of replies (Miller 2024, section 5). The noise comes
    from the variance between replies to one task; of single replies only a share's is known, p (1 - p).
    """
    chosen = next(m for m in metrics_for(1) if m.name == metric)
    scores, pairs = scores_by_arm(run, trials), []
    arms = itertools.product(arms_of_kind(run, "with_skill"), arms_of_kind(run, "without_skill"))
    for model, (treatment, control) in itertools.product(run.config.models, arms):
        made = _pair(chosen, scores[model.name, treatment], scores[model.name, control])
        pairs += [] if made is None else [made]
    if not pairs:
        raise UsageError(
            f"run {run.run_id} shows no spread of {metric} between families: it needs two families or more, "
            f"measured with and without a skill; name another run, or give --sd"
        )
    total, noises = mean(one[0] for one in pairs), [one[1] for one in pairs if one[1] is not None]
    between = math.sqrt(max(0.0, total - mean(noises))) if noises else None
    share = chosen.unit == "share"
    spread = Spread(
        source=f"observed in {run.run_id}",
        total=math.sqrt(total),
        replies=mean(one[2] for one in pairs),
        between=between,
        share=share,
    )
    return spread, mean(one[3] for one in pairs)


def _pair(
    chosen: Metric, treatment: Scores, control: Scores
) -> tuple[float, float | None, float, float] | None:
    """(variance of differences, its part from replies, replies per family, mean without), if any."""
    lift = chosen.lift(treatment, control, tested=False)
    differences = [difference for _, difference in lift.per_family]
    if len(differences) < 2 or stdev(differences) <= NO_SPREAD:
        return None
    assert lift.mean_with is not None and lift.mean_without is not None
    tasks: dict[str, list[str]] = defaultdict(list)
    for family, task, _ in lift.per_task:
        tasks[family].append(task)
    sides = [_by_task(chosen, side) for side in (treatment, control)]
    counts = [len(side[task]) for side in sides for _, task, _ in lift.per_task]
    replies = sum(counts) / (2 * len(differences))
    noise = None
    if min(counts) > 1:
        noise = mean(
            math.fsum(variance(s[t]) / len(s[t]) for s in sides for t in names) / len(names) ** 2
            for names in tasks.values()
        )
    elif chosen.unit == "share":
        noise = math.fsum(p * (1.0 - p) for p in (lift.mean_with, lift.mean_without)) / replies
    return variance(differences), noise, replies, lift.mean_without


def _by_task(chosen: Metric, scores: Scores) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for _, task, value in chosen.values(scores):
        found[task].append(value)
    return found
