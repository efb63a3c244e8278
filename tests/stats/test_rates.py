"""Shares of trials, exact tests of counts and Holm's adjustment: published values and edge cases."""

from __future__ import annotations

import itertools
import math

import pytest

from harness import stats
from harness.stats.rates import clopper_pearson_low


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (20, 20, 0.8389, 1.0)],
)
def test_wilson_matches_newcombe(successes: int, n: int, low: float, high: float) -> None:
    """Newcombe (1998), table I, method 3; exactly 0 or 1 at the ends, and None without a trial."""
    assert stats.wilson(0, 0) is None
    found = stats.wilson(successes, n)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=5.1e-5)


@pytest.mark.parametrize(
    ("successes", "n", "low"),
    [(0, 10, 0.0), (10, 10, 0.6915), (8, 10, 0.4439), (1, 10, 0.0025), (15, 29, 0.3253)],
)
def test_clopper_pearson_matches_published_limits(successes: int, n: int, low: float) -> None:
    """The lower 95 % limits of the usual tables."""
    assert clopper_pearson_low(successes, n, 0.05) == pytest.approx(low, abs=6e-5)


def test_pass_at_k_matches_enumeration() -> None:
    """pass@k and pass^k are the shares of k-subsets with some, and with only, correct replies."""
    for n in range(1, 7):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
            assert stats.pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-15)
            assert stats.pass_hat_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws), abs=1e-15)
    assert stats.pass_at_k(1_000, 0, 10) == 0.0
    assert stats.pass_at_k(1_000, 991, 10) == 1.0


@pytest.mark.parametrize(
    ("table", "published"),
    [
        ((3, 1, 1, 3), 34 / 70),  # Fisher's lady tasting tea
        ((2, 10, 15, 3), 0.0005367),  # Fisher's convicted twins, as in R's fisher.test
        ((0, 5, 0, 7), 1.0),
        ((40, 4_960, 40, 4_960), 1.0),
    ],
)
def test_fisher_exact_matches_published_tables(table: tuple[int, int, int, int], published: float) -> None:
    """The two-sided p of well-known tables, and 1 where a margin is empty."""
    assert stats.fisher_exact(*table) == pytest.approx(published, rel=2e-4)


def test_fast_p_counts_all_trials() -> None:
    """fast_p divides by all trials, also the incorrect ones, and needs strictly more than p."""
    assert stats.fast_p([1.0, 2.0, None, 0.5], (0.0, 1.0, 1.5, 2.0)) == (0.75, 0.25, 0.25, 0.0)
    assert stats.fast_p([None], (0.0,)) == (0.0,)


def test_holm_by_hand() -> None:
    """0.005 x 4, 0.01 x 3, 0.03 x 2, then never less than the one before; None counts as a planned test."""
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert stats.holm([0.6, 0.7]) == (1.0, 1.0)
    assert (stats.holm([0.04]), stats.holm([]), stats.holm([None])) == ((0.04,), (), (None,))
    assert stats.holm([0.01, None, 0.02]) == pytest.approx((0.03, None, 0.04))


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (stats.wilson, (3, 2)),
        (clopper_pearson_low, (3, 2, 0.05)),
        (stats.pass_at_k, (3, 1, 4)),
        (stats.pass_hat_k, (3, 1, 0)),
        (stats.fisher_exact, (1, -1, 2, 3)),
        (stats.fast_p, ([], [1.0])),
        (stats.fast_p, ([math.nan], [1.0])),
        (stats.holm, ([0.5, math.nan],)),
    ],
)
def test_bad_counts_and_shares_are_refused(function, arguments) -> None:  # type: ignore[no-untyped-def]
    """Impossible counts, draws, speedups, thresholds and p values are errors, not guesses."""
    with pytest.raises(ValueError):
        function(*arguments)
