"""The rule that turns two figures into one, on samples made by hand."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.judge.clock import (
    MINIMUM_UNCERTAINTY_US,
    Constant,
    LaneName,
    Lanes,
    ReferenceClock,
    Samples,
    claims_too_little,
    constant_of,
    contender_timing,
    lane,
    single_score_us,
)
from harness.judge.scoring import UNRESOLVED, Scores, reference_clock
from harness.judge.worker_reply import Reveal
from harness.records import ContenderTiming

NULL = Constant(us=0.0, error_us=0.0, per_set_us=20.0)
"""20 us a call, whatever the size of a reveal: `a` is 2 % of a call of 1,000 us."""


def times_of(outside_us: float, inside_us: float | None, *, calls: int = 1, aside_us: float = 0.0) -> Reveal:
    return Reveal(
        calls=calls,
        outside_us=outside_us * calls,
        latency_us=5.0,
        claim_us=None if inside_us is None else inside_us * calls,
        each_us=() if inside_us is None else (inside_us,) * calls,
        aside_us=aside_us * calls,
    )


def samples_of(
    outside_us: float, inside_us: float | None, *, reveals: int = 20, sets: int = 1, aside_us: float = 0.0
) -> Samples:
    samples = Samples()
    for i in range(reveals):
        samples.add(i // 4, times_of(outside_us, inside_us, calls=sets, aside_us=aside_us))
    return samples


def timed(
    call: Samples,
    batch: Samples | None = None,
    constant: Constant = NULL,
    *,
    name: str = "student",
    clock: ReferenceClock = "inside",
) -> ContenderTiming:
    both: Lanes = {"call": call, "batch": call if batch is None else batch}
    constants: dict[LaneName, Constant] = {"call": constant, "batch": constant}
    return contender_timing(name, both, constants, trusted=name != "student", clock=clock)


def scores_of(student: Samples, null: Samples, eager: Samples | None = None) -> Scores:
    every = {
        "student": student,
        "eager": samples_of(1020.0, 1000.0) if eager is None else eager,
        "null": null,
    }
    return Scores({name: {"call": samples, "batch": samples} for name, samples in every.items()})


def timing_of(outside_us: float, inside_us: float | None, *, name: str = "student") -> ContenderTiming:
    return timed(samples_of(outside_us, inside_us), name=name)


@pytest.mark.parametrize(
    ("claim_us", "name", "score_us", "flags", "false"),
    [
        (1015.0, "student", 1015.0, (), False),  # within u of the outside figure
        (500.0, "student", 1000.0, ("clock_mismatch",), True),  # below: the outside figure, maybe a cheat
        (1500.0, "student", 1500.0, ("clock_mismatch",), False),  # above: the claim
        (None, "student", 1000.0, ("clock_mismatch",), False),  # refusing to say is no cheat
        (500.0, "eager", 500.0, (), False),  # a worker of ours is believed
    ],
)
def test_which_figure_is_the_score(
    claim_us: float | None, name: str, score_us: float, flags: tuple[str, ...], false: bool
) -> None:
    """A claim counts within u of the outside figure (1,000 us), and against its worker where it is higher."""
    timing = timing_of(1020.0, claim_us, name=name)
    assert (timing.score_us, timing.flags) == (pytest.approx(score_us), flags)
    assert claims_too_little(timing) is false
    assert timing.scored_lane.uncertainty_us == pytest.approx(20.0)


def test_references_give_the_constant_where_there_is_no_null_project() -> None:
    """By what their reveals take beyond their calls and copies: a true 2.00x is read as such."""
    samples = {
        "student": samples_of(600.0, 480.0),
        "eager": samples_of(1130.0, 1000.0, aside_us=30.0),
        "library": samples_of(1600.0, 1500.0),
    }
    scores = Scores({name: {"call": some, "batch": some} for name, some in samples.items()})
    assert scores.constants["batch"].us == pytest.approx(100.0)
    assert [math.exp(one) for one in scores.compare().logs] == pytest.approx([2.0] * 5)


def test_one_malformed_reveal_spoils_all_claims() -> None:
    """Claims are used for all reveals or for none: a worker cannot pick which of its calls count."""
    samples = samples_of(1100.0, 900.0)
    samples.add(9, times_of(1100.0, None, calls=2))
    found = lane("call", samples, NULL, trusted=False)
    assert not (found.claimed or found.matched)


def test_avoided_constant_and_low_claim_gain_u_together() -> None:
    """Who avoids all of the constant answers sooner by `a`; a claim below that counts down to u in all."""
    # 1,000 us of work, and nothing of the 20 us that a reveal costs; 3 sigma is 30 us.
    timing = timed(samples_of(1000.0, 950.0), constant=Constant(us=20.0, error_us=10.0))
    lane = timing.scored_lane
    assert (lane.outside_us, lane.uncertainty_us) == (pytest.approx(980.0), pytest.approx(30.0))
    assert lane.matched
    assert timing.score_us == pytest.approx(1000.0 - lane.uncertainty_us)


@pytest.mark.parametrize(
    ("single_us", "reference_single_us", "scored_us"),
    [(40.0, 60.0, None), (100.0, 60.0, 80.0), (100.0, 170.0, None), (100.0, 90.0, 50.0)],
)
def test_who_fuses_a_batch_is_scored_by_singles(
    single_us: float, reference_single_us: float, scored_us: float | None
) -> None:
    """Where single calls cost more than batches by more than u and than for the reference, they are scored,
    less that."""

    def of(call_us: float, batch_us: float, name: str) -> ContenderTiming:
        batch = samples_of(20.0 + batch_us, batch_us, sets=8)
        return timed(samples_of(20.0 + call_us, call_us), batch, name=name)

    student, eager = of(single_us, 30.0, "student"), of(reference_single_us, 60.0, "eager")
    found = single_score_us(student, eager)
    assert found == (None if scored_us is None else pytest.approx(scored_us))


def test_false_claim_in_the_other_lane_is_noticed() -> None:
    """A claim that is honest in the scored lane only is still false."""
    timing = timed(samples_of(1020.0, 100.0), samples_of(1020.0, 1000.0, sets=4))
    assert timing.score_us == pytest.approx(1000.0)
    assert timing.flags == ("clock_mismatch",)
    assert claims_too_little(timing)


def test_outside_figure_is_total_over_calls() -> None:
    """Sleeping in one of many calls cannot be hidden by a median."""
    samples = samples_of(120.0, 100.0, reveals=9)
    samples.add(9, times_of(10_120.0, 100.0))
    assert lane("call", samples, NULL, trusted=False).outside_us == pytest.approx(1100.0)


def test_uncertainty_is_the_largest_of_three() -> None:
    """u is 3 sigma, `a`, or 2 us a reveal, whichever is largest; a batch shares the 2 us of its reveal."""
    nothing = Constant(0.0, 0.0)
    for constant, u_us in ((nothing, MINIMUM_UNCERTAINTY_US), (NULL, 20.0), (Constant(0.0, 10.0), 30.0)):
        found = lane("call", samples_of(105.0, 5.0), constant, trusted=False)
        assert found.uncertainty_us == pytest.approx(u_us)
    batch = lane("batch", samples_of(60.0, 10.0, sets=4), nothing, trusted=False)
    assert batch.uncertainty_us == pytest.approx(MINIMUM_UNCERTAINTY_US / 4)


@pytest.mark.parametrize("claim_us", [0.0, 60.0, 200.0, 201.0])
def test_uncertain_clock_believes_no_claim(claim_us: float) -> None:
    """Where u is above 5 % of the figure, no claim is used: the outside figure is the score, flagged."""
    timing = timed(samples_of(300.0, claim_us), constant=Constant(us=100.0, error_us=500.0))
    assert timing.scored_lane.lowest_us is None
    assert timing.score_us == pytest.approx(200.0)
    assert not timing.scored_lane.matched
    assert timing.flags == ("outside_clock",)
    assert not claims_too_little(timing)


@pytest.mark.parametrize("cut", [0.0, 0.5, 0.7, 0.85, 0.95, 0.99])
@pytest.mark.parametrize("avoided", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("error_us", [0.0, 3.0, 10.0, 20.0, 50.0, 500.0])
def test_gain_of_a_forger_is_at_most_u(cut: float, avoided: float, error_us: float) -> None:
    """Whatever a worker claims, and whatever share of the constant it avoids, it gains at most u."""
    constant = Constant(20.0, error_us)
    outside_us = 1000.0 + 20.0 * (1 - avoided)
    timing = timed(samples_of(outside_us, 1000.0 * cut), constant=constant)
    assert timing.score_us >= 1000.0 - timing.scored_lane.uncertainty_us - 1e-6


def test_reference_beside_the_outside_clock() -> None:
    """A reference is scored by the clock of its student; copying its results is not charged by either."""
    samples = samples_of(1020.0, 700.0, aside_us=300.0)
    inside, outside = timed(samples, name="eager"), timed(samples, name="eager", clock="outside")
    assert (inside.score_us, outside.score_us) == (700.0, pytest.approx(700.0))
    # A student cannot have its own time subtracted as copying.
    student = timed(samples)
    assert student.scored_lane.outside_us == pytest.approx(1000.0)
    assert student.reveals_us == pytest.approx([1000.0] * len(samples.reveals))
    assert outside.reveals_us == pytest.approx([700.0] * len(samples.reveals))


def test_loop_cheaper_than_the_null_projects() -> None:
    """A student whose reveals cost less than the null project's scores half of them, in each block too."""
    samples, null = samples_of(60.0, 0.0, sets=4), samples_of(100.0, 0.0, sets=4)
    scores = scores_of(samples, null)
    timing = scores.timing("student")
    assert (timing.lane, timing.score_us) == ("batch", pytest.approx(30.0))
    assert list(scores.block_us("student", "outside").values()) == [pytest.approx(30.0)] * 5
    assert UNRESOLVED in scores.compare().flags


def test_claims_cannot_be_moved_between_blocks() -> None:
    """Claims that are right on average gain no more by lying in one block than the lowest that is used."""
    samples = Samples()
    for block in range(5):
        claim_us = 3.0 if block < 4 else 5000.0 - 4 * 3.0
        samples.add(block, times_of(1020.0, claim_us))
    scores = scores_of(samples, samples_of(20.0, 0.0))
    lane = scores.timing("student").scored_lane
    assert (lane.matched, lane.lowest_us) == (True, pytest.approx(1000.0))
    ours = [1000.0] * 4 + [4988.0]
    assert scores.compare().logs == pytest.approx([math.log(1000.0 / us) for us in ours])


def test_fast_blocks_of_honest_claims_stay_fast() -> None:
    """A device's clock differs between blocks: claims count down to what their own block took."""
    student = Samples()
    for block, us in enumerate([960.0, 980.0, 1000.0, 1020.0, 1040.0]):
        student.add(block, times_of(us + 20.0, us))
    scores = scores_of(student, samples_of(20.0, 0.0))
    assert scores.timing("student").scored_lane.matched
    assert sum(scores.compare().logs) == pytest.approx(
        -sum(math.log(1 + d) for d in (-0.04, -0.02, 0.02, 0.04))
    )


def test_drift_of_the_constant_is_taken_off_block_by_block() -> None:
    """What reveals cost may differ between blocks, for candidates and the null project alike."""
    drift = [0.0, 50.0, 100.0, 150.0, 200.0]
    student, null = Samples(), Samples()
    for block, extra_us in enumerate(drift * 2):
        student.add(block % 5, times_of(1300.0 + extra_us, None))
        null.add(block % 5, times_of(300.0 + extra_us, 0.0))
    means = scores_of(student, null).block_us("student", "outside")
    assert list(means.values()) == [pytest.approx(1000.0)] * 5


def test_constant_grows_with_the_sets() -> None:
    """Mapping more sets costs more: that is no uncertainty, and is taken off each reveal by its size."""
    samples = Samples()
    for sets in range(2, 40):
        samples.add(0, times_of((150.0 + 20.0 * sets) / sets, 0.0, calls=sets))
    constant = constant_of(samples)
    assert (constant.us, constant.per_set_us) == (pytest.approx(150.0), pytest.approx(20.0))
    assert constant.error_us == pytest.approx(0.0, abs=1e-6)
    batch = samples_of((150.0 + 30.0 * 10) / 10, 10.0, sets=10)
    assert lane("batch", batch, constant, trusted=False).outside_us == pytest.approx(10.0)
    near = Samples([one for one in samples.reveals if one.calls >= 30])
    assert constant_of(near, apart=2.0).per_set_us == 0.0 < constant_of(near).per_set_us


@pytest.mark.parametrize(
    ("claim_us", "clock"), [(990.0, "inside"), (100.0, "best"), (None, "best"), (1500.0, "best")]
)
def test_who_contradicts_the_clock_does_not_choose_it(claim_us: float | None, clock: str) -> None:
    """Beside false or missing claims, a reference has the smaller of its two figures."""
    student = timing_of(1020.0, claim_us)
    assert reference_clock(student) == clock
    eager = timed(samples_of(1020.0, 700.0), name="eager", clock="best")
    assert eager.score_us == pytest.approx(700.0)
