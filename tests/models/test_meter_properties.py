"""Budgets that hold whatever comes, and from however many threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import BudgetSpent
from harness.models.meter import Limits, Meter, Spent
from harness.records import Reply, Request
from tests.models.paid import REQUEST, Fake, reply


def _ask_until_spent(model: Callable[[Request], Reply], times: int) -> int:
    """How many of so many calls were refused."""
    refused = 0
    for _ in range(times):
        try:
            model(REQUEST)
        except BudgetSpent:
            refused += 1
    return refused


def test_a_limit_on_calls_is_exact_from_many_threads() -> None:
    """No race lets one call too many through, and none is lost."""
    inner, meter = Fake(reply()), Meter(Limits(max_calls=50))
    model = meter.wrap(inner)
    with ThreadPoolExecutor(8) as pool:
        refused = sum(pool.map(lambda _: _ask_until_spent(model.complete, 20), range(8)))
    assert (inner.calls, refused) == (50, 8 * 20 - 50)
    assert meter.spent == Spent(calls=50, input_tokens=500, output_tokens=1000, cost_usd=25.0, tokens=1500)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(max_tokens=25), r"0 of 25 tokens used \(about 30 more under way\)"),
        (Limits(max_cost_usd=25e-6), r"\$0.0000 of \$0.0000 used \(about \$0.0000 more under way\)"),
    ],
)
def test_prompts_under_way_are_reserved(limits: Limits, message: str) -> None:
    """Calls that have not come back hold their prompts, so no more begin than the limit has room for."""
    begun, go = threading.Semaphore(0), threading.Event()

    class Slow(Fake):
        def complete(self, request: Request) -> Reply:
            begun.release()
            go.wait()
            return super().complete(request)

    inner, meter = Slow(reply()), Meter(limits)
    model = meter.wrap(inner)
    with ThreadPoolExecutor(3) as pool:
        under_way = [pool.submit(model.complete, REQUEST) for _ in range(3)]
        for _ in under_way:
            begun.acquire()
        try:
            with pytest.raises(BudgetSpent, match=message):
                model.complete(REQUEST)
        finally:
            go.set()
        assert [call.result().text for call in under_way] == ["a project"] * 3
    assert inner.calls == 3


_COUNT = st.none() | st.integers(0, 1000)
_REPLIES = st.lists(
    st.builds(
        reply,
        st.tuples(_COUNT, _COUNT),
        st.none() | st.floats(0, 10),
        st.text(max_size=50),
        recorded=st.booleans(),
        stop=st.sampled_from(["end", "tool", "overflow"]),
    ),
    min_size=1,
    max_size=20,
)
_LIMITS = st.builds(
    Limits,
    max_tokens=st.none() | st.integers(0, 3000),
    max_cost_usd=st.none() | st.floats(0, 20),
    max_calls=st.none() | st.integers(0, 12),
)


@given(_REPLIES, _LIMITS)
@settings(max_examples=80, deadline=None)
def test_no_call_begins_beyond_a_limit(replies: list[Reply], limits: Limits) -> None:
    """One at a time: every call begins below all limits, and the first that is refused stands at one."""
    inner, meter = Fake(*replies), Meter(limits)
    model = meter.wrap(inner)
    refused = _ask_until_spent(model.complete, len(replies))
    asked, spent = replies[: inner.calls], meter.spent
    assert inner.calls + refused == len(replies) and spent.calls == inner.calls
    paid = [one for one in asked if not one.recorded and one.stop != "overflow"]
    known = sum((one.usage.input_tokens or 0) + (one.usage.output_tokens or 0) for one in paid)
    assert spent.tokens == known + spent.estimated_tokens
    assert (spent.cost_usd is None) == any(one.cost_usd is None for one in paid)
    if spent.cost_usd is not None:
        assert spent.cost_usd == pytest.approx(sum(one.cost_usd or 0.0 for one in paid))
    if limits.max_calls is not None:
        assert spent.calls <= limits.max_calls
    if limits.max_tokens is not None and asked:
        before_last = Meter()
        earlier = before_last.wrap(Fake(*replies))
        for _ in asked[:-1]:
            earlier.complete(REQUEST)
        assert before_last.spent.tokens < limits.max_tokens
    if limits.max_tokens is not None and limits.max_cost_usd is None and limits.max_calls is None and refused:
        assert spent.tokens >= limits.max_tokens
