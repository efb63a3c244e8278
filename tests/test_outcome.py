"""The policy table."""

from harness.outcome import POLICY, Cause, Verdict


def test_every_cause_has_exactly_one_policy() -> None:
    """No cause is without a verdict."""
    assert set(POLICY) == set(Cause)


def test_only_infrastructure_failures_are_retried() -> None:
    """A retry is for infra alone, and useless where a folder is full."""
    retried = {cause for cause, policy in POLICY.items() if policy.retry}
    assert retried == {c for c in POLICY if POLICY[c].verdict is Verdict.INFRA} - {Cause.STORAGE}


def test_every_verdict_can_be_reached() -> None:
    """No verdict is dead."""
    assert {p.verdict for p in POLICY.values()} == set(Verdict)
