"""The policy table."""

from harness.outcome import POLICY, Cause, Verdict


def test_every_cause_has_exactly_one_policy() -> None:
    """No cause is without a verdict."""
    assert set(POLICY) == set(Cause)


def test_every_verdict_can_be_reached() -> None:
    """No verdict is dead."""
    assert set(POLICY.values()) == set(Verdict)
