"""Whether a frozen process slowed down the references, from turns made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.device.telemetry import TelemetrySample
from harness.judge.interference import MARGIN, ReferenceTurn, State, is_cheat, judge_interference, rates


def turns(
    state: State,
    factor: float,
    *,
    life: int = 0,
    name: str = "eager",
    per_s: float | None = None,
    noise: float = 0.01,
) -> list[ReferenceTurn]:
    return [
        ReferenceTurn(name, state, life, 100.0 * factor * (1 + sign * noise), per_s, per_s)
        for sign in (-1, 1, -1, 1)
    ]


@pytest.mark.parametrize(
    ("factor", "seen"), [(1.0, False), (1 + 0.8 * MARGIN, False), (1.2, True), (10.0, True), (0.8, False)]
)
def test_slower_references_are_seen(factor: float, seen: bool) -> None:
    """References that take longer beside the frozen process, by more than the margin and 3 sigma."""
    found = judge_interference([*turns("frozen", factor), *turns("gone", 1.0)])
    assert found is not None
    assert (found.seen, found.control) == (seen, None)
    assert found.excess == pytest.approx(factor - 1)


def test_what_an_idle_process_does_too_is_not_held_against_a_student() -> None:
    """The null project in the student's place slows references as much: that is the machine."""
    both = [
        *turns("frozen", 1.3),
        *turns("gone", 1.0),
        *turns("control", 1.28, life=1),
        *turns("gone", 1.0, life=1),
    ]
    found = judge_interference(both)
    assert found is not None
    assert found.control == pytest.approx(0.28)
    assert not found.seen


def test_a_slow_phase_of_the_machine_is_not_interference() -> None:
    """What only the scored process shows, and two others do not, is the machine's."""
    every = [*turns("frozen", 1.5), *turns("gone", 1.0)]
    for life in (1, 2):
        for state in ("frozen", "gone", "control"):
            every += turns(state, 1.0, life=life)
    found = judge_interference(every)
    assert found is not None
    assert (found.seen, found.lives, found.lives_slowed) == (False, 3, 1)


@pytest.mark.parametrize(
    ("slowed", "per_s", "cheat"),
    [(3, 9_000.0, True), (2, 9_000.0, False), (3, 1_100.0, False), (3, None, False)],
)
def test_a_cheat_needs_three_processes_and_a_cause(slowed: int, per_s: float | None, cheat: bool) -> None:
    """All of three processes slow references down, and the kernel is seen to work more meanwhile."""
    every: list[ReferenceTurn] = []
    for life in range(3):
        every += turns("frozen", 1.5 if life < slowed else 1.0, life=life, per_s=per_s)
        every += turns("gone", 1.0, life=life, per_s=None if per_s is None else 1_000.0)
        every += turns("control", 1.0, life=life) if life else []
    found = judge_interference(every)
    assert found is not None
    assert (found.seen, found.lives, found.lives_slowed) == (True, 3, slowed)
    assert is_cheat(found) is cheat


def test_rates_are_per_second() -> None:
    """Counters of two samples, over the time between them; unknown where the kernel does not report them."""
    first, last = (
        TelemetrySample(at, cores=2, interrupts=n, softirqs=7) for at, n in ((1.0, 100), (3.0, 500))
    )
    assert rates((first, last)) == (200.0, 0.0)
    assert rates((replace(first, interrupts=None), last)) == (None, 0.0)
    assert rates(None) == (None, None)
