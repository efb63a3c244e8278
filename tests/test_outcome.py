"""The policy table."""

from harness.outcome import POLICY, Cause, Verdict


def test_every_cause_has_exactly_one_policy() -> None:
    """No cause is without a verdict."""
    assert set(POLICY) == set(Cause)


def test_only_our_own_failures_are_retried_and_unscored() -> None:
    """infra is retried and never scored; everything else is scored and never retried."""
    for policy in POLICY.values():
        assert policy.retry == (policy.verdict is Verdict.INFRA)
        assert policy.scored == (policy.verdict is not Verdict.INFRA)


def test_every_verdict_can_be_reached() -> None:
    """No verdict is dead."""
    assert {p.verdict for p in POLICY.values()} == set(Verdict)
