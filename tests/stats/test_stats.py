"""Formulas against published values, hand calculations and edge cases.

Every expected number is published or worked out by hand.
"""

import itertools
import math
import random
from dataclasses import replace
from typing import Literal

import pytest

from harness import stats
from harness.stats import Interval, Lift, Observation, student_t
from harness.stats.decision import Decision, decide

Arm = Literal["treatment", "control"]


def _study(differences: list[float], base: float = 0.25) -> list[Observation]:
    """One task with one repeat per arm in each family, with the given differences."""
    found = []
    for index, difference in enumerate(differences):
        names = f"family{index:02}", f"task{index:02}"
        found.append(Observation(*names, "treatment", base + difference))
        found.append(Observation(*names, "control", base))
    return found


_CLEAR = [0.30, 0.25, 0.35, 0.28, 0.32, 0.27, 0.33, 0.31]  # eight families, all better
_UNCLEAR = [0.30, -0.25, 0.35, -0.28, 0.02, -0.27, 0.33, -0.01]
# Darwin's Zea mays, crossed minus self-fertilised, in eighths of an inch (Fisher 1935, ch. III).
_DARWIN = [49.0, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]


# Student t


@pytest.mark.parametrize(
    ("p", "df", "published"),
    [
        (0.90, 1, 3.078),
        (0.95, 2, 2.920),
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 5, 2.571),
        (0.975, 9, 2.262),
        (0.975, 30, 2.042),
        (0.975, 120, 1.980),
        (0.99, 4, 3.747),
        (0.995, 10, 3.169),
        (0.999, 3, 10.215),
        (0.9995, 1, 636.619),
        (0.9995, 30, 3.646),
    ],
)
def test_t_quantiles_match_the_printed_table(p: float, df: int, published: float) -> None:
    """t_ppf gives the values of the usual printed t table to its three decimals."""
    assert student_t.t_ppf(p, df) == pytest.approx(published, abs=5.1e-4)
    assert student_t.t_ppf(1.0 - p, df) == pytest.approx(-published, abs=5.1e-4)


@pytest.mark.parametrize("t", [-1e8, -3.0, -0.1, 0.0, 1e-9, 0.5, 2.0, 40.0, 1e8])
def test_t_cdf_has_its_closed_forms(t: float) -> None:
    """With 1 and 2 degrees of freedom t_cdf is the arctangent and the algebraic closed form."""
    assert student_t.t_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-13)
    two = 0.5 + t / (2.0 * math.sqrt(2.0 + t * t))
    assert student_t.t_cdf(t, 2) == pytest.approx(two, abs=1e-13)


@pytest.mark.parametrize("df", [1, 2.5, 7, 40, 1_000])
@pytest.mark.parametrize("p", [1e-12, 0.001, 0.2, 0.5, 0.500001, 0.8, 0.975, 0.9999])
def test_quantile_and_cdf_are_inverse(df: float, p: float) -> None:
    """t_cdf undoes t_ppf over the whole range, also far in the tail."""
    assert student_t.t_cdf(student_t.t_ppf(p, df), df) == pytest.approx(p, rel=1e-11)


def test_t_approaches_the_normal_distribution() -> None:
    """With a million degrees of freedom the 97.5% quantile is the normal one."""
    assert student_t.t_ppf(0.975, 1e6) == pytest.approx(1.959964 + 2.4e-6, abs=1e-6)


@pytest.mark.parametrize("df", [0.5, 0.0, -1.0, math.nan, math.inf])
def test_t_refuses_bad_degrees_of_freedom(df: float) -> None:
    """Degrees of freedom below 1 or not finite are refused."""
    with pytest.raises(ValueError, match="df"):
        student_t.t_ppf(0.9, df)
    with pytest.raises(ValueError, match="df"):
        student_t.t_cdf(1.0, df)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, 1.1, math.nan])
def test_t_ppf_refuses_a_bad_probability(p: float) -> None:
    """A probability outside the open unit interval is refused."""
    with pytest.raises(ValueError, match="p must"):
        student_t.t_ppf(p, 5)


def test_t_cdf_refuses_a_value_that_is_not_finite() -> None:
    """t must be a finite number."""
    with pytest.raises(ValueError, match="finite"):
        student_t.t_cdf(math.nan, 5)


# Rates


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_matches_newcombe(successes: int, n: int, low: float, high: float) -> None:
    """The score interval has the values of Newcombe (1998), table I, method 3."""
    found = stats.wilson(successes, n)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=5.1e-5)


def test_wilson_ends_exactly_at_the_boundary() -> None:
    """No success gives a lower bound of exactly 0, no failure an upper bound of exactly 1."""
    for n in range(1, 200):
        none, full = stats.wilson(0, n), stats.wilson(n, n)
        assert none is not None and full is not None
        assert none.low == 0.0 < none.high < 1.0
        assert full.high == 1.0 > full.low > 0.0


def test_wilson_of_nothing_is_none() -> None:
    """Without trials there is no interval."""
    assert stats.wilson(0, 0) is None


@pytest.mark.parametrize(
    ("successes", "n", "confidence"), [(3, 2, 0.95), (-1, 2, 0.95), (0, -1, 0.95), (1, 2, 1.0)]
)
def test_wilson_refuses_bad_input(successes: int, n: int, confidence: float) -> None:
    """More successes than trials, negative counts and a confidence of 1 are refused."""
    with pytest.raises(ValueError):
        stats.wilson(successes, n, confidence)


def test_pass_at_k_matches_enumeration() -> None:
    """pass@k and pass^k are the shares of k-subsets with some, and with only, correct replies."""
    for n in range(1, 7):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
            some = sum(map(any, draws)) / len(draws)
            every = sum(map(all, draws)) / len(draws)
            assert stats.pass_at_k(n, c, k) == pytest.approx(some, abs=1e-15)
            assert stats.pass_hat_k(n, c, k) == pytest.approx(every, abs=1e-15)


def test_pass_at_k_by_hand() -> None:
    """With 2 of 5 correct, pass@2 is 1 - C(3,2)/C(5,2) = 0.7 and pass^2 is 1/10."""
    assert stats.pass_at_k(5, 2, 2) == pytest.approx(0.7)
    assert stats.pass_hat_k(5, 2, 2) == pytest.approx(0.1)


def test_pass_at_k_stays_exact_at_the_ends() -> None:
    """Nothing correct is exactly 0, and more draws than wrong replies is exactly 1."""
    assert stats.pass_at_k(1_000, 0, 10) == 0.0
    assert stats.pass_at_k(1_000, 991, 10) == 1.0
    assert stats.pass_at_k(1_000, 990, 10) < 1.0 + 1e-15


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 4, 1), (3, -1, 1), (3, 1, 0), (0, 0, 1)])
def test_pass_at_k_refuses_bad_input(n: int, c: int, k: int) -> None:
    """k above n, c above n, and k below 1 are refused, not guessed."""
    with pytest.raises(ValueError):
        stats.pass_at_k(n, c, k)
    with pytest.raises(ValueError):
        stats.pass_hat_k(n, c, k)


@pytest.mark.parametrize(
    ("table", "published"),
    [
        ((3, 1, 1, 3), 34 / 70),  # Fisher's lady tasting tea
        ((4, 0, 0, 4), 2 / 70),
        ((2, 10, 15, 3), 0.0005367),  # Fisher's convicted twins, as in R's fisher.test
        ((0, 5, 0, 7), 1.0),
        ((0, 0, 0, 0), 1.0),
    ],
)
def test_fisher_exact_matches_published_tables(table: tuple[int, int, int, int], published: float) -> None:
    """The two-sided p of well-known tables, and 1 where a margin is empty."""
    assert stats.fisher_exact(*table) == pytest.approx(published, rel=2e-4)


def test_fisher_exact_is_symmetric() -> None:
    """Swapping rows or columns, or transposing, changes nothing at all."""
    rng = random.Random(4)
    for _ in range(50):
        a, b, c, d = (rng.randrange(12) for _ in range(4))
        p = stats.fisher_exact(a, b, c, d)
        assert 0.0 < p <= 1.0
        assert p == stats.fisher_exact(c, d, a, b) == stats.fisher_exact(b, a, d, c)
        assert p == stats.fisher_exact(a, c, b, d)


def test_fisher_exact_takes_large_studies() -> None:
    """Thousands of trials per arm neither overflow nor lose the answer."""
    assert stats.fisher_exact(40, 4_960, 40, 4_960) == 1.0
    assert 0.0 < stats.fisher_exact(10, 4_990, 60, 4_940) < 1e-8


def test_fisher_exact_refuses_negative_counts() -> None:
    """A negative count is refused."""
    with pytest.raises(ValueError, match="negative"):
        stats.fisher_exact(1, -1, 2, 3)


# Means and ratios


def test_mean_interval_matches_students_sleep_data() -> None:
    """Student's paired sleep data: mean 1.58, interval 0.7001 to 2.4599 (R)."""
    found = stats.mean_interval([1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4])
    assert found.mean == pytest.approx(1.58)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(0.7001142, abs=1e-6)
    assert found.interval.high == pytest.approx(2.4598858, abs=1e-6)
    assert found.n == 10


@pytest.mark.parametrize("values", [[0.4], [0.4, 0.4, 0.4], [0.0, 0.0], [0.3, 0.1 + 0.2]])
def test_no_spread_gives_no_interval(values: list[float]) -> None:
    """One value, equal values and values equal but for rounding give None, never zero width."""
    found = stats.mean_interval(values)
    assert found.mean == pytest.approx(values[0])
    assert (found.interval, found.n) == (None, len(values))


@pytest.mark.parametrize("scale", [1e-250, 1e-160, 1.0, 1e160, 1e250])
def test_mean_interval_does_not_overflow(scale: float) -> None:
    """Very small and very large units give the same interval, rescaled."""
    found = stats.mean_interval([1.0 * scale, 2.0 * scale, 4.0 * scale])
    assert found.interval is not None
    assert found.interval.high / scale == pytest.approx(7.0 / 3.0 + 3.794615, rel=1e-5)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [1.0, math.inf]])
def test_bad_values_are_refused_everywhere(values: list[float]) -> None:
    """No values, NaN and infinity are refused by every function of a list of numbers."""
    for function in (
        stats.mean_interval,
        stats.log_ratio_interval,
        stats.geometric_mean,
        stats.median_iqr,
    ):
        with pytest.raises(ValueError):
            function(values)


def test_geometric_mean_by_hand() -> None:
    """The geometric mean of 1/2, 2 and 8 is 2; a doubling and a halving cancel."""
    assert stats.geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    assert stats.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="above 0"):
        stats.geometric_mean([1.0, 0.0])


def test_log_ratio_interval_is_the_exponentiated_t_interval() -> None:
    """Five process pairs: the ratio and its bounds are exp of the mean log and its t interval."""
    logs = [0.10, 0.12, 0.08, 0.11, 0.09]
    found = stats.log_ratio_interval(logs)
    half = 2.776445 * math.sqrt(0.00025 / 5)
    assert found.interval is not None
    assert found.ratio == pytest.approx(math.exp(0.1))
    assert math.log(found.interval.low) == pytest.approx(0.1 - half, abs=1e-8)
    assert math.log(found.interval.high) == pytest.approx(0.1 + half, abs=1e-8)
    assert found.n == 5


def test_log_ratio_interval_of_one_pair_is_none() -> None:
    """One process pair gives a ratio without an interval."""
    assert stats.log_ratio_interval([0.0]) == stats.RatioEstimate(1.0, None, 1)


def test_confidence_widens_the_interval() -> None:
    """A 99% interval contains the 95% interval; a confidence of 1 is refused."""
    narrow, wide = (stats.mean_interval([1.0, 2.0, 4.0], c).interval for c in (0.95, 0.99))
    assert narrow is not None and wide is not None
    assert wide.low < narrow.low < narrow.high < wide.high
    with pytest.raises(ValueError, match="confidence"):
        stats.mean_interval([1.0, 2.0], 1.0)


def test_median_and_quartiles_by_hand() -> None:
    """Quartiles interpolate linearly: of 1, 2, 3, 10 they are 1.75, 2.5 and 4.75."""
    assert stats.median_iqr([10.0, 2.0, 3.0, 1.0]) == (2.5, 1.75, 4.75)
    assert stats.median_iqr([7.0]) == (7.0, 7.0, 7.0)


@pytest.mark.parametrize(("n_units", "ratio"), [(12, 1.56), (30, 1.30), (48, 1.23), (100, 1.15)])
def test_minimum_detectable_ratio_matches_protocols(n_units: int, ratio: float) -> None:
    """The figures of protocols.md (sd 0.5 of the per-unit log ratio, 80% power) to 2 decimals."""
    assert round(stats.minimum_detectable_ratio(0.5, n_units), 2) == ratio


def test_minimum_detectable_ratio_grows_with_what_is_asked() -> None:
    """More power, a smaller alpha or more noise needs a larger effect."""
    least = stats.minimum_detectable_ratio(0.5, 30)
    assert stats.minimum_detectable_ratio(0.5, 30, power=0.9) > least
    assert stats.minimum_detectable_ratio(0.5, 30, alpha=0.01) > least
    assert stats.minimum_detectable_ratio(0.6, 30) > least


@pytest.mark.parametrize(
    ("sd", "n_units", "power", "alpha"),
    [(0.0, 12, 0.8, 0.05), (0.5, 1, 0.8, 0.05), (0.5, 12, 1.0, 0.05), (math.nan, 12, 0.8, 0.05)],
)
def test_minimum_detectable_ratio_refuses_bad_input(
    sd: float, n_units: int, power: float, alpha: float
) -> None:
    """No noise, a single unit and certain power have no answer."""
    with pytest.raises(ValueError):
        stats.minimum_detectable_ratio(sd, n_units, power, alpha)


# Scores


def test_deployed_is_never_negative() -> None:
    """A user keeps the reference, so only a correct and distinguishable speedup scores."""
    assert stats.deployed(2.0, True, True) == pytest.approx(math.log(2.0))
    assert stats.deployed(0.5, True, True) == 0.0
    assert stats.deployed(1.01, True, False) == 0.0
    assert stats.deployed(2.0, False, True) == 0.0
    assert stats.deployed(None, False, False) == 0.0


@pytest.mark.parametrize("speedup", [None, 0.0, -1.0, math.nan, math.inf])
def test_deployed_refuses_what_was_not_measured(speedup: float | None) -> None:
    """A correct trial without a usable speedup is absent from the metric, never 0."""
    with pytest.raises(ValueError):
        stats.deployed(speedup, True, False)


def test_fast_p_counts_all_trials() -> None:
    """fast_p divides by all trials, also the incorrect ones, and needs strictly more than p."""
    assert stats.fast_p([1.0, 2.0, None, 0.5], (0.0, 1.0, 1.5, 2.0)) == (0.75, 0.25, 0.25, 0.0)
    assert stats.fast_p([None], (0.0,)) == (0.0,)


@pytest.mark.parametrize(
    ("speedups", "thresholds"), [([], [1.0]), ([0.0], [1.0]), ([math.nan], [1.0]), ([1.0], [-1.0])]
)
def test_fast_p_refuses_bad_input(speedups: list[float | None], thresholds: list[float]) -> None:
    """No trials, impossible speedups and negative thresholds are refused."""
    with pytest.raises(ValueError):
        stats.fast_p(speedups, thresholds)


# Lift


def test_paired_lift_averages_repeats_then_tasks_then_families() -> None:
    """Many tasks in a family or many repeats of a task give it no more weight."""

    def rows(family: str, task: str, arm: Arm, *values: float) -> list[Observation]:
        return [Observation(family, task, arm, value) for value in values]

    found = stats.paired_lift(
        [
            *rows("norm", "rms", "treatment", 1.0, 1.0, 0.0, 0.0),  # 0.5
            *rows("norm", "rms", "control", 0.0),
            *rows("norm", "layer", "treatment", 1.0),
            *rows("norm", "layer", "control", 1.0, 0.0),  # 0.5
            *rows("gemm", "bf16", "treatment", 1.0),
            *rows("gemm", "bf16", "control", 0.0, 0.0, 0.0),
            *rows("gemm", "fp8", "treatment", 1.0),  # no control: dropped
            *rows("scan", "sum", "control", 1.0),  # no treatment: dropped
        ]
    )
    assert found.per_family == (("gemm", 1.0), ("norm", 0.5))
    assert (found.mean_with, found.mean_without, found.lift) == (0.875, 0.125, 0.75)
    assert (found.n_families, found.n_tasks, found.n_dropped_tasks) == (2, 3, 2)
    assert (found.p_value, found.interval, found.n_different) == (0.5, None, 2)


def test_paired_lift_does_not_depend_on_order() -> None:
    """Shuffled observations give the identical record, to the last bit."""
    rng = random.Random(3)
    arms: tuple[Arm, Arm] = ("treatment", "control")
    observations = [
        Observation(f"f{task % 7}", f"t{task}", arm, rng.random())
        for task in range(25)
        for arm in arms
        for _ in range(3)
    ]
    expected = stats.paired_lift(observations)
    for _ in range(5):
        rng.shuffle(observations)
        assert stats.paired_lift(observations) == expected


def test_swapping_the_arms_mirrors_the_lift() -> None:
    """Exchanging treatment and control negates lift and interval and keeps the p value."""
    ahead = stats.paired_lift(_study(_UNCLEAR))
    behind = stats.paired_lift(_study([-difference for difference in _UNCLEAR]))
    assert ahead.lift is not None and ahead.interval is not None and behind.interval is not None
    assert behind.lift == pytest.approx(-ahead.lift)
    assert behind.interval.low == pytest.approx(-ahead.interval.high)
    assert behind.p_value == ahead.p_value


def test_sign_flip_matches_fishers_count_on_darwins_maize() -> None:
    """Fisher (1935) counts 863 of 32,768 sign patterns in each tail, ties included: p = 0.05267."""
    assert stats.paired_lift(_study(_DARWIN)).p_value == 2 * 863 / 2**15


def test_sign_flip_keeps_ties_when_units_are_not_binary_fractions() -> None:
    """Ties with the observed sum count as extreme although rounding splits them."""
    tenths = [difference / 10.0 for difference in _DARWIN]
    assert stats.paired_lift(_study(tenths, base=0.1)).p_value == 2 * 863 / 2**15


@pytest.mark.parametrize("n", [2, 6, 12, 20])
def test_sign_flip_has_its_smallest_value_when_all_agree(n: int) -> None:
    """n families that all improve give exactly p = 2 / 2^n."""
    found = stats.paired_lift(_study([0.1 + 0.01 * index for index in range(n)]))
    assert found.p_value == 2.0 / 2**n


def test_monte_carlo_flips_are_deterministic_and_never_zero() -> None:
    """With 40 families the p value repeats exactly and its least value is 2 / 99,991."""
    study = _study([0.2 + 0.01 * index for index in range(40)])
    assert stats.paired_lift(study).p_value == 2 / 99_991
    mixed = _study(_UNCLEAR * 5)
    assert stats.paired_lift(mixed) == stats.paired_lift(mixed)


def test_equal_differences_have_an_interval_unless_they_are_0() -> None:
    """A lift equal in every family has an interval of some width; one of 0, but for rounding, has none."""
    tenths = [Observation("a", "a", "treatment", 0.1 + 0.2), Observation("a", "a", "control", 0.3)]
    same = [Observation("b", "b", "treatment", 0.3), Observation("b", "b", "control", 0.3)]
    found = stats.paired_lift(tenths + same)
    assert (found.interval, found.p_value, found.n_different) == (None, 1.0, 0)
    equal = stats.paired_lift(_study([0.5] * 8), shares=True)
    assert equal.interval is not None and 0.0 < equal.interval.low < 0.5 < equal.interval.high < 1.0


def test_one_family_gives_a_lift_and_nothing_more() -> None:
    """A single family has a lift, but neither interval nor p value."""
    found = stats.paired_lift(_study([0.5]))
    assert (found.lift, found.interval, found.p_value, found.n_families) == (0.5, None, None, 1)


def test_without_a_pair_everything_is_none() -> None:
    """No task with both arms gives None throughout, and the dropped tasks are counted."""
    assert stats.paired_lift([]) == Lift(None, None, None, None, None, 0, 0, 0, ())
    alone = [Observation("a", "t", "control", 1.0), Observation("a", "u", "treatment", 1.0)]
    assert stats.paired_lift(alone) == Lift(None, None, None, None, None, 0, 0, 2, ())


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (Observation("a", "t", "control", math.nan), "finite"),
        (Observation("b", "task00", "control", 1.0), "two families"),
        (Observation("a", "t", "placebo", 1.0), "unknown arm"),  # type: ignore[arg-type]
    ],
)
def test_paired_lift_refuses_bad_observations(observation: Observation, message: str) -> None:
    """NaN, a task in two families and an unknown arm are refused."""
    with pytest.raises(ValueError, match=message):
        stats.paired_lift([*_study([0.1, 0.2]), observation])


def test_paired_lift_refuses_bad_settings() -> None:
    """A confidence of 95, also without data, and shares above 1 are refused."""
    with pytest.raises(ValueError, match="confidence"):
        stats.paired_lift([], confidence=95)
    with pytest.raises(ValueError, match="shares"):
        stats.paired_lift(_study([1.0]), shares=True)


# Several tests, and the decision


def test_holm_by_hand() -> None:
    """Four p values: 0.005 x 4, 0.01 x 3, 0.03 x 2, then never less than the one before."""
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert stats.holm([0.6, 0.7]) == (1.0, 1.0)
    assert stats.holm([0.04]) == (0.04,)
    assert stats.holm([]) == ()


def test_holm_counts_a_missing_p_value_as_a_planned_test() -> None:
    """None stays None, and the others are corrected as if its p value were 1."""
    assert stats.holm([0.01, None, 0.02]) == pytest.approx((0.03, None, 0.04))
    assert stats.holm([None]) == (None,)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_holm_refuses_what_is_no_p_value(p: float) -> None:
    """A p value outside [0, 1] is refused."""
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        stats.holm([0.5, p])


def test_a_clear_lift_helps_and_its_mirror_hurts() -> None:
    """An interval off zero with p below alpha is called in its direction."""
    assert decide(stats.paired_lift(_study(_CLEAR))).decision == "helps"
    worse = stats.paired_lift(_study([-difference for difference in _CLEAR]))
    assert decide(worse).decision == "hurts"


def test_an_unclear_lift_is_inconclusive() -> None:
    """An interval across zero decides nothing, and the reason says so."""
    found = decide(stats.paired_lift(_study(_UNCLEAR)))
    assert found == Decision("inconclusive", "the interval includes 0, p = 0.703; 8 of 8 families differ")


def test_fewer_than_six_families_never_decide() -> None:
    """Five families are too few, whatever the evidence or block; six can decide."""
    five = stats.paired_lift(_study(_CLEAR[:5]))
    assert decide(five) == Decision("inconclusive", "too few families")
    assert decide(five, blocked="infra").reason == "too few families"
    assert decide(stats.paired_lift([])).reason == "too few families"
    assert decide(stats.paired_lift(_study(_CLEAR[:6]))).decision == "helps"


def test_interval_and_p_value_must_agree() -> None:
    """An interval off zero is not enough: the adjusted p value must be at most alpha as well."""
    lift = stats.paired_lift(_study(_CLEAR[:6]))
    assert lift.p_value == 0.03125
    found = decide(lift, p_adjusted=0.0625)
    assert found == Decision("inconclusive", "adjusted p = 0.0625 is above 0.05; 6 of 6 families differ")
    assert decide(replace(lift, p_value=0.0501)).decision == "inconclusive"
    assert decide(replace(lift, p_value=0.05)).decision == "helps"


@pytest.mark.parametrize("n", [6, 7, 25])
def test_from_nothing_to_everything_helps(n: int) -> None:
    """Every family from 0 % to 100 %: no spread, and yet the clearest help there is; the mirror hurts."""
    found = stats.paired_lift(_study([1.0] * n, base=0.0), shares=True)
    made = decide(found)
    assert made.decision == "helps" and f"{n} of {n} families differ" in made.reason
    assert found.interval is not None and 0.0 < found.interval.low < found.interval.high == 1.0
    mirror = stats.paired_lift(_study([-1.0] * n, base=1.0), shares=True)
    assert decide(mirror).decision == "hurts"


def test_no_difference_is_said_to_be_none() -> None:
    """All families alike in both arms: there is nothing to test."""
    found = stats.paired_lift(_study([0.0] * 8))
    assert (found.interval, found.p_value) == (None, 1.0)
    assert decide(found) == Decision("inconclusive", "no difference seen")


def test_a_lift_that_was_not_tested_decides_nothing() -> None:
    """A decision without a p value is a mistake of the caller."""
    with pytest.raises(ValueError, match="not tested"):
        decide(stats.paired_lift(_study(_CLEAR), tested=False))


def test_a_blocked_decision_gives_its_reason() -> None:
    """A block, such as unequal infra rates, overrules a clear lift."""
    found = decide(stats.paired_lift(_study(_CLEAR)), blocked="infra rates differ")
    assert found == Decision("inconclusive", "infra rates differ")


def test_helps_must_beat_the_placebo_too() -> None:
    """A skill that beats nothing but not the placebo is inconclusive; one that beats both helps."""
    lift = stats.paired_lift(_study(_CLEAR))
    for placebo in (_UNCLEAR, _CLEAR[:5], [-difference for difference in _CLEAR], [0.0] * 8):
        found = decide(lift, placebo=stats.paired_lift(_study(placebo)))
        assert found.decision == "inconclusive"
        assert "placebo" in found.reason
    assert decide(lift, placebo=lift).decision == "helps"


def test_hurts_needs_no_placebo() -> None:
    """A skill that hurts is called so, also where it does no worse than the placebo."""
    worse = stats.paired_lift(_study([-difference for difference in _CLEAR]))
    placebo = stats.paired_lift(_study(_UNCLEAR))
    assert decide(worse, placebo=placebo).decision == "hurts"


def test_decide_refuses_an_interval_of_another_confidence() -> None:
    """alpha = 0.01 needs a 99% interval; deciding on a 95% one is refused."""
    study = _study(_CLEAR)
    with pytest.raises(ValueError, match="confidence"):
        decide(stats.paired_lift(study), alpha=0.01)
    assert decide(stats.paired_lift(study, 0.99), alpha=0.01).decision == "helps"


@pytest.mark.parametrize("p_adjusted", [0.001, 1.1, math.nan])
def test_decide_refuses_an_adjusted_p_below_the_raw_one(p_adjusted: float) -> None:
    """An adjustment only raises a p value: anything else is a mistake of the caller."""
    with pytest.raises(ValueError, match="p_adjusted"):
        decide(stats.paired_lift(_study(_CLEAR)), p_adjusted=p_adjusted)


def test_decide_refuses_a_single_family_as_minimum() -> None:
    """A minimum below two families has no inference."""
    with pytest.raises(ValueError, match="minimum_families"):
        decide(stats.paired_lift(_study(_CLEAR)), minimum_families=1)


def test_results_are_frozen() -> None:
    """A result cannot be changed after the fact."""
    with pytest.raises(AttributeError):
        Interval(0.0, 1.0).low = 2.0  # type: ignore[misc]


def test_families_without_a_difference_change_no_p_value() -> None:
    """Twenty families, six of which differ, alike: exact 2/64; of thirty within the error of the draws."""
    assert stats.paired_lift(_study([0.5] * 6 + [0.0] * 14)).p_value == 2 / 64
    drawn = stats.paired_lift(_study([0.5] * 6 + [0.0] * 24))
    assert drawn.p_value == pytest.approx(2 / 64, abs=0.0032)
    assert drawn.n_different == 6
    assert stats.paired_lift(_study([0.0] * 8)).p_value == 1.0


def test_an_untested_lift_has_its_interval_and_no_p_value() -> None:
    """Descriptive rows need no test; nothing else changes."""
    tested = stats.paired_lift(_study(_CLEAR))
    assert stats.paired_lift(_study(_CLEAR), tested=False) == replace(tested, p_value=None)
