"""Simulated studies with a known truth: does the inference by family keep its promises?"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness import stats
from harness.stats import Lift, Observation, paired_lift
from harness.stats.decision import decide
from tests.stats.inference_figures import COVERAGE, COVERED, DECIDED, DECISIONS, STUDIES, Row
from tests.stats.simulated_studies import Floats, Population, Studies, family_differences, simulate

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "statistics.md"
REDUCED = 120
"""Studies in a run of the program here; the document has STUDIES."""
Figure = Callable[[str, float], None]


def _observations(studies: Studies, index: int) -> list[Observation]:
    """The raw repeats of one study, as `paired_lift` gets them from a run."""
    found: list[Observation] = []
    for family, task in zip(*np.nonzero(studies.repeats[index]), strict=True):
        n = int(studies.repeats[index, family, task])
        names = f"family{family}", f"task{family}.{task}"
        solved = round(studies.with_skill[index, family, task] * n)
        solved_without = round(studies.without_skill[index, family, task] * n)
        for repeat in range(n):
            found.append(Observation(*names, "treatment", float(repeat < solved)))
            found.append(Observation(*names, "control", float(repeat < solved_without)))
    return found


def _real_lifts(population: Population, n_studies: int, n_families: int, seed: int) -> list[Lift]:
    studies = simulate(population, n_studies, n_families, seed)
    return [paired_lift(_observations(studies, index), shares=True) for index in range(n_studies)]


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Print a simulated share (pytest -s) and keep it in the junit file."""

    def note(name: str, share: float) -> None:
        record_property(name, share)
        print(f"\n{name}: {share:.2%}", end="")

    return note


def test_the_vectorised_estimator_agrees_with_paired_lift() -> None:
    """The family differences of simulated studies are those of `paired_lift` on raw repeats."""
    for n_families in (6, 13):
        studies = simulate(Population(), 40, n_families, seed=1)
        differences = family_differences(studies)
        for index in range(40):
            lift = paired_lift(_observations(studies, index))
            assert lift.lift == pytest.approx(differences[index].mean(), abs=1e-12)
            assert lift.n_tasks == np.count_nonzero(studies.repeats[index])


@pytest.mark.parametrize("base_rate", [0.2, 0.5, 0.8])
def test_simulated_studies_have_the_true_rates_we_ask_for(base_rate: float) -> None:
    """The known truth is the truth: over very many families both arms have their stated mean."""
    studies = simulate(Population(base_rate=base_rate), 2_000, 40, seed=2, tasks=(3, 3))
    # 80,000 families with a spread of at most 0.3 each: standard error about 0.001.
    assert float(studies.without_skill.mean()) == pytest.approx(base_rate, abs=0.004)
    assert float(studies.with_skill.mean()) == pytest.approx(base_rate + 0.1, abs=0.004)


def _published(label: str) -> list[tuple[float, float]]:
    """The pairs of shares in a row of docs/statistics.md."""
    (line,) = [x for x in DOCUMENT.read_text("utf-8").splitlines() if x.startswith(f"| {label} |")]
    cells = line.strip("|").split("|")[1:]
    pairs = [[float(value) / 100 for value in re.findall(r"([0-9.]+)%", cell)] for cell in cells]
    return [(first, second) for first, second in pairs]


def _near(found: float, published: float, studies: int) -> bool:
    """Within four standard errors of both shares; none is below that of half a study."""
    share = min(1.0 - 0.5 / studies, max(0.5 / studies, (found + published) / 2))
    error: float = (share * (1.0 - share) * (1 / studies + 1 / STUDIES)) ** 0.5
    return abs(found - published) <= 4.0 * error + 0.006  # and the rounding of what is printed


@pytest.mark.parametrize("row", DECISIONS, ids=lambda row: row.label)
def test_the_published_decisions_are_those_of_the_program(row: Row) -> None:
    """The decision is the exact test alone, study by study; false helps stay within half of alpha."""
    for n, (decided, alone) in zip(DECIDED, _published(row.label), strict=True):
        found = row.figures(REDUCED, n)
        # Up to 20 families both are exact; above, the decision rests on drawn subsets.
        assert found[0] == pytest.approx(found[1], abs=0.0 if n <= 20 else 2.5 / REDUCED)
        assert _near(found[0], decided, REDUCED) and _near(found[1], alone, REDUCED)
        assert decided == pytest.approx(alone, abs=1e-9 if n <= 20 else 0.004)
        if row.label.startswith("no effect"):
            assert decided <= 0.025


@pytest.mark.parametrize("row", COVERAGE, ids=lambda row: row.label)
def test_the_published_coverage_is_that_of_the_program(row: Row) -> None:
    """Reduced runs of the program give the table's shares within their error."""
    for n, (held, made) in zip(COVERED, _published(row.label), strict=True):
        found = row.figures(REDUCED, n)
        assert _near(found[0], held, round(REDUCED * found[1])) and _near(found[1], made, REDUCED)


def test_paired_lift_itself_covers_the_true_lift(figure: Figure) -> None:
    """The interval that `paired_lift` returns from raw repeats covers in 93-97% of studies."""
    intervals = [lift.interval for lift in _real_lifts(Population(), 2_000, 10, seed=5)]
    covered = [found is not None and found.low <= 0.1 <= found.high for found in intervals]
    figure("coverage, paired_lift, 10 families, base rate 0.5", float(np.mean(covered)))
    assert 0.93 <= np.mean(covered) <= 0.97


@pytest.mark.parametrize(("n_families", "base_rate"), [(6, 0.5), (10, 0.2), (10, 0.5), (10, 0.8)])
def test_a_null_skill_is_rarely_called_helpful(n_families: int, base_rate: float, figure: Figure) -> None:
    """A skill whose mean effect is zero is called `helps` in at most 2.5% of studies by `decide`."""
    lifts = _real_lifts(Population(base_rate=base_rate, lift=0.0), 2_000, n_families, seed=6)
    called = [decide(lift).decision for lift in lifts]
    helps, hurts = called.count("helps") / len(called), called.count("hurts") / len(called)
    figure(f"null called helps, {n_families} families, base rate {base_rate}", helps)
    figure(f"null called hurts, {n_families} families, base rate {base_rate}", hurts)
    assert helps <= 0.025 + 3 * 0.0035  # Monte-Carlo standard error 0.0035
    assert helps + hurts <= 0.065


def test_a_strong_skill_is_called_helpful(figure: Figure) -> None:
    """The rule is not just silent: a lift of 30 points in 10 families is nearly always found."""
    lifts = _real_lifts(Population(base_rate=0.2, lift=0.3), 500, 10, seed=7)
    helps = [decide(lift).decision == "helps" for lift in lifts]
    figure("lift of 30 points called helps, 10 families", float(np.mean(helps)))
    assert np.mean(helps) >= 0.9


def test_a_t_interval_by_task_raises_false_alarms(figure: Figure) -> None:
    """With 30 tasks in 6 families, inference by task calls a null skill far too often significant."""
    population = Population(lift=0.0, family_lift_sd=1.0)
    studies = simulate(population, 4_000, 6, seed=8, tasks=(5, 5))
    by_task: Floats = (studies.with_skill - studies.without_skill).reshape(4_000, 30)
    intervals = [stats.mean_interval(row).interval for row in by_task.tolist()]
    alarms_by_task = float(np.mean([one is not None and not one.low <= 0.0 <= one.high for one in intervals]))
    p_values = [stats.sign_flip(row).p_value for row in family_differences(studies).tolist()]
    alarms_by_family = float(np.mean([p <= 0.05 for p in p_values]))
    figure("null significant by task, 30 tasks in 6 families", alarms_by_task)
    figure("null significant by family, 30 tasks in 6 families", alarms_by_family)
    assert alarms_by_task > 0.12
    assert alarms_by_family < 0.065
