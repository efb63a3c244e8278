"""The rule that turns two figures into one, on samples made by hand."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.judge.clock import (
    MINIMUM_UNCERTAINTY_US,
    Constant,
    Samples,
    block_means,
    claims_too_little,
    constant_of,
    contender_timing,
    lane,
    spread,
)
from harness.judge.contender import CallTimes
from harness.records import ContenderTiming

NULL = Constant(low_us=100.0, spread_us=0.0)


def samples_of(
    outside_us: float, inside_us: float | None, *, reveals: int = 20, sets: int = 1, latency_us: float = 5.0
) -> Samples:
    """Equal reveals; `outside_us` and `inside_us` per call, None for no claim."""
    samples = Samples()
    for i in range(reveals):
        claims = () if inside_us is None else (round(inside_us * 1e3),) * sets
        samples.add(i // 4, sets, CallTimes(outside_us * sets / 1e6, latency_us / 1e6, claims))
    return samples


def timing_of(outside_us: float, inside_us: float | None, *, trusted: bool = False) -> ContenderTiming:
    """Both lanes alike, over a null project of 100 us a call."""
    both = {"call": samples_of(outside_us, inside_us), "batch": samples_of(outside_us, inside_us)}
    return contender_timing("student", both, {"call": NULL, "batch": NULL}, trusted=trusted)  # type: ignore[arg-type]


def test_matched_claim_is_the_score() -> None:
    """A claim within u of the outside figure is the score, without a flag."""
    timing = timing_of(1100.0, 960.0)
    assert (timing.lane, timing.score_us, timing.flags) == ("call", 960.0, ())
    assert timing.scored_lane.outside_us == pytest.approx(1000.0)
    assert timing.scored_lane.uncertainty_us == pytest.approx(100.0)
    assert not claims_too_little(timing)


def test_low_claim_is_not_believed() -> None:
    """A claim below the outside figure by more than u scores the outside figure, and may be a cheat."""
    timing = timing_of(1100.0, 500.0)
    assert timing.flags == ("clock_mismatch",)
    assert timing.score_us == pytest.approx(1000.0)
    assert claims_too_little(timing)


def test_high_claim_is_held_against_it() -> None:
    """A claim above the outside figure by more than u scores the claim; that is no cheat."""
    timing = timing_of(1100.0, 1500.0)
    assert (timing.score_us, timing.flags) == (1500.0, ("clock_mismatch",))
    assert not claims_too_little(timing)


def test_no_claim() -> None:
    """Without well-formed claims the outside figure is the score, flagged; refusing to say is no cheat."""
    timing = timing_of(1100.0, None)
    assert timing.score_us == pytest.approx(1000.0)
    assert timing.flags == ("clock_mismatch",)
    assert not claims_too_little(timing)


def test_one_malformed_reveal_spoils_all_claims() -> None:
    """Claims are used for all reveals or for none: a worker cannot pick which of its calls count."""
    samples = samples_of(1100.0, 900.0)
    assert samples.claimed
    samples.add(9, 2, CallTimes(2200e-6, 5e-6, (1,)))
    assert not samples.claimed
    assert not lane("call", samples, NULL, trusted=False).matched


def test_trusted_worker_is_believed() -> None:
    """The reference's own figure stands: the outside one includes a copy that is not charged to it."""
    timing = timing_of(1100.0, 500.0, trusted=True)
    assert (timing.score_us, timing.flags) == (500.0, ())


def test_short_workload_is_clock_limited() -> None:
    """A workload shorter than ten times the latency is scored in the batch lane, and flagged."""
    call, batch = samples_of(140.0, 40.0), samples_of(135.0, 34.5, sets=4)
    timing = contender_timing(
        "student", {"call": call, "batch": batch}, {"call": NULL, "batch": NULL}, trusted=False
    )
    assert (timing.lane, timing.flags) == ("batch", ("clock-limited",))
    assert timing.score_us == pytest.approx(34.5)


def test_false_claim_in_the_other_lane_is_noticed() -> None:
    """A claim that is honest in the scored lane only is still false."""
    both = {"call": samples_of(1100.0, 1000.0), "batch": samples_of(1100.0, 100.0, sets=4)}
    timing = contender_timing("student", both, {"call": NULL, "batch": NULL}, trusted=False)  # type: ignore[arg-type]
    assert timing.score_us == 1000.0
    assert timing.flags == ("clock_mismatch",)
    assert claims_too_little(timing)


def test_outside_figure_is_total_over_calls() -> None:
    """Sleeping in one of many calls cannot be hidden by a median."""
    samples = samples_of(200.0, 100.0, reveals=9)
    samples.add(9, 1, CallTimes(10_200e-6, 5e-6, (100_000,)))
    assert lane("call", samples, NULL, trusted=False).outside_us == pytest.approx(1100.0)


def test_uncertainty_has_a_floor() -> None:
    """u is never below 2 us, and grows with the null project's spread."""
    quiet = lane("call", samples_of(105.0, 5.0), NULL, trusted=False)
    assert quiet.uncertainty_us == MINIMUM_UNCERTAINTY_US
    noisy = lane("call", samples_of(105.0, 5.0), Constant(100.0, 10.0), trusted=False)
    assert noisy.uncertainty_us == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("claim_us", "score_us", "matched"), [(0.0, 200.0, False), (99.0, 200.0, False), (101.0, 101.0, True)]
)
def test_noise_does_not_make_a_low_claim_true(claim_us: float, score_us: float, matched: bool) -> None:
    """However uncertain the clock is, a claim below half of its figure is not used; nor is it a cheat."""
    both = {"call": samples_of(300.0, claim_us), "batch": samples_of(300.0, claim_us)}
    noisy = Constant(low_us=100.0, spread_us=500.0)
    timing = contender_timing("student", both, {"call": noisy, "batch": noisy}, trusted=False)  # type: ignore[arg-type]
    assert timing.scored_lane.uncertainty_us > timing.scored_lane.outside_us
    assert timing.score_us == pytest.approx(score_us)
    assert timing.scored_lane.matched is matched
    assert not claims_too_little(timing)


def test_stretched_calls_do_not_refute_an_honest_claim() -> None:
    """On a host that stretches some calls tenfold, a claim near the other calls' time is still used."""
    call = samples_of(300.0, 210.0, reveals=10)
    for i in range(4):
        call.add(i, 1, CallTimes(2000e-6, 5e-6, (210_000,)))
    timing = contender_timing(
        "student", {"call": call, "batch": call}, {"call": NULL, "batch": NULL}, trusted=False
    )
    assert timing.scored_lane.outside_us > 3 * 210.0
    assert timing.score_us == pytest.approx(210.0)


def test_nothing_is_below_zero() -> None:
    """A student faster than the null project's constant scores a tiny positive time, never 0 or less."""
    timing = timing_of(50.0, 0.0)
    assert timing.score_us > 0
    assert all(one.outside_us > 0 for one in timing.lanes)
    assert all(value > 0 for value in block_means(samples_of(50.0, 0.0), NULL, inside=True).values())


def test_constant_of_the_null_project() -> None:
    """The constant is the 5th percentile per call, and its spread what the mean is above that."""
    samples = Samples()
    for i in range(101):
        samples.add(0, 2, CallTimes((100 + i) * 2e-6, 1e-6, (0, 0)))
    constant = constant_of(samples)
    assert (constant.low_us, constant.spread_us) == (pytest.approx(105.0), pytest.approx(45.0))


def test_keep_blocks() -> None:
    """Keeping some blocks keeps their reveals whole."""
    samples = samples_of(200.0, 100.0, reveals=12)
    kept = samples.keep({0, 2})
    assert (kept.block, kept.calls, kept.claimed) == ([0] * 4 + [2] * 4, 8, True)
    assert block_means(kept, NULL, inside=False) == {0: pytest.approx(100.0), 2: pytest.approx(100.0)}


def test_spread() -> None:
    """One duration has no spread, and none is an error."""
    one = spread([3.0])
    assert (one.n, one.mean_us, one.q1_us, one.q3_us) == (1, 3.0, 3.0, 3.0)
    with pytest.raises(ValueError, match="no durations"):
        spread([])
