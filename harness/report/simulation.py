"""Simulated studies: how often a planned one finds an effect, by the report's own decision.

The same plan gives the same figures.

The model: every arm of a model has a normal deviation of its own in every family, so that the difference of
two arms has the sd that is planned with, and two differences from one arm correlate by 1/2, as they do in a
study with a shared control. Models are independent. A placebo does what no skill does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from harness import stats
from harness.report.detectable import least_families
from harness.stats.decision import adjusted_together, decide

Floats = npt.NDArray[np.float64]
MOST_FAMILIES: Final = 400
"""Larger studies are not simulated: no one plans one."""
_SEED: Final = 20_261_122
_LIFTS: Final = 6_000
_STUDIES: Final = (200, 1_000)
_STEPS: Final = 6
_CLOSE: Final = 0.008
"""Of a share: less than the error of any number of studies here."""


@dataclass(frozen=True)
class Design:
    """What is compared with what."""

    skills: int = 1
    """Arms with a skill or a combination."""
    models: int = 1
    placebo: bool = False
    """One for each skill: `helps` must beat it too."""

    @property
    def comparisons(self) -> int:
        """Decisions that share the error rate by Holm."""
        return self.skills * self.models

    @property
    def plain(self) -> bool:
        """One decision about one difference: that has a formula."""
        return self.comparisons == 1 and not self.placebo


@dataclass(frozen=True)
class Everywhere:
    """Shares of studies in which every comparison has the effect."""

    each: float
    """One comparison, the mean of all, says `helps`."""
    all: float
    """All of them do."""


Tested = tuple[stats.Lift, stats.Lift | None]
"""Of one comparison: its lift, and with a placebo the lift over that."""


@dataclass
class Simulation:
    """Studies of one design; effects are in units of the sd between families."""

    design: Design
    alpha: float
    _noise: tuple[int, list[Floats]] = field(default=(0, []), repr=False)
    _idle: tuple[int, list[Tested]] = field(default=(0, []), repr=False)

    @property
    def studies(self) -> int:
        """Fewer where each holds many lifts, so that a plan takes seconds."""
        lifts = self.design.comparisons * (2 if self.design.placebo else 1)
        return max(_STUDIES[0], min(_STUDIES[1], _LIFTS // lifts))

    @property
    def level(self) -> float:
        """What the smallest p of all comparisons must fall below."""
        return self.alpha / self.design.comparisons

    @property
    def least(self) -> int:
        """Families below which no comparison can say `helps`."""
        return max(least_families(self.alpha), stats.fewest_families(self.level))

    def error(self, share: float) -> float:
        """Monte-Carlo standard error of a share."""
        return math.sqrt(share * (1.0 - share) / self.studies)

    def power(self, effect: float, families: int) -> float:
        """How often `helps` is said of the one comparison that has this effect; no other has any."""
        if families < self.least:
            return 0.0
        count, tested = self.design.comparisons, list(self._without_effect(families))
        tested[::count] = self._tested([noise[:, :1] + effect for noise in self._differences(families)])
        groups = (tested[start : start + count] for start in range(0, len(tested), count))
        return sum(self._helps(group)[0] for group in groups) / self.studies

    def everywhere(self, effect: float, families: int) -> Everywhere:
        """How often it is said where every comparison has this effect."""
        if families < self.least:
            return Everywhere(0.0, 0.0)
        count = self.design.comparisons
        tested = self._tested([noise + effect for noise in self._differences(families)])
        groups = (tested[start : start + count] for start in range(0, len(tested), count))
        said = [self._helps(group) for group in groups]
        each = sum(map(sum, said)) / (count * self.studies)
        return Everywhere(each, sum(map(all, said)) / self.studies)

    def _helps(self, tested: list[Tested]) -> list[bool]:
        """The decisions of one study, as its report would make them."""
        least, found = least_families(self.alpha), []
        for (lift, placebo), p in zip(tested, adjusted_together(tested), strict=True):
            made = decide(lift, minimum_families=least, alpha=self.alpha, placebo=placebo, p_adjusted=p)
            found.append(made.decision == "helps")
        return found

    def _tested(self, differences: list[Floats]) -> list[Tested]:
        """differences: (studies, comparisons, families), over the control and over the placebo; by study."""
        sides: list[list[stats.Lift]] = []
        for one in differences:
            rows = one.reshape(-1, one.shape[-1])
            sides.append(stats.lifts_of_studies(rows, 1.0 - self.alpha, self.level))
        lifts = sides[0]
        placebos: list[stats.Lift | None] = [*sides[1]] if self.design.placebo else [None] * len(lifts)
        return list(zip(lifts, placebos, strict=True))

    def _without_effect(self, families: int) -> list[Tested]:
        """Every comparison without any effect: the same whatever another one has."""
        if self._idle[0] != families:
            self._idle = families, self._tested(self._differences(families))
        return self._idle[1]

    def _differences(self, families: int) -> list[Floats]:
        """Noise of with - without, and of with - placebo: (studies, comparisons, families), sd 1."""
        if self._noise[0] != families:
            skills, models = self.design.skills, self.design.models
            arms = 1 + skills * (2 if self.design.placebo else 1)
            rng = np.random.default_rng((_SEED, families, arms, models))
            drawn = rng.standard_normal((self.studies, models, arms, families)) / math.sqrt(2.0)
            treated = drawn[:, :, 1 : 1 + skills]
            made = [treated - drawn[:, :, :1]]
            made += [treated - drawn[:, :, 1 + skills :]] if self.design.placebo else []
            shape = (self.studies, self.design.comparisons, families)
            self._noise = families, [one.reshape(shape) for one in made]
        return self._noise[1]

    def smallest_effect(self, families: int, power: float) -> float | None:
        """The effect that one comparison finds with this power where no other has any; None: none can be."""
        if families < self.least:
            return None
        normal = NormalDist()
        effect = stats.smallest_effect(1.0, families, power, self.level)
        if effect is None:
            return None
        steep = math.sqrt(families)  # of the normal quantile of power, per unit of effect
        before: tuple[float, float] | None = None
        for _ in range(_STEPS):
            share = self.power(effect, families)
            if abs(share - power) <= _CLOSE:
                break
            reached = normal.inv_cdf(min(0.995, max(0.005, share)))
            if before is not None and effect != before[0]:
                slope = (reached - before[1]) / (effect - before[0])
                steep = min(2.0 * math.sqrt(families), max(0.2 * math.sqrt(families), slope))
            before = effect, reached
            effect = max(0.25 * effect, effect + (normal.inv_cdf(power) - reached) / steep)
        return effect

    def families_needed(self, effect: float, power: float) -> int | None:
        """Families that find it where no other comparison has any; None: more than MOST_FAMILIES.

        Between a size that is too small and one that is large enough the search ends at 2 %, below which
        the simulated share does not tell sizes apart.
        """
        normal = NormalDist()
        low, high = self.least - 1, MOST_FAMILIES + 1
        families = max(self.least, stats.units_needed(effect, 1.0, power, self.level))
        while high - low > max(1, 0.02 * high) and families <= MOST_FAMILIES:
            share = self.power(effect, families)
            low, high = (low, families) if share >= power else (families, high)
            missing = normal.inv_cdf(power) - normal.inv_cdf(min(0.995, max(0.005, share)))
            # A step that the share calls for, and one more, so that the end is met from both sides.
            step = (math.sqrt(families) + missing / effect) ** 2 - families
            families += math.floor(step) - 1 if share >= power else math.ceil(step) + 1
            families = min(high - 1, max(low + 1, families))
        return high if high <= MOST_FAMILIES else None
