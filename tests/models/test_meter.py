"""Budgets: what is counted, what is refused, and by how much a limit may be exceeded."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.errors import BudgetSpent, ProviderError, UsageError
from harness.models.meter import Limits, Meter, Spent
from harness.models.prices import Price
from harness.records import Message, Reply, Request, Sampling, Thinking, ToolCall, Usage
from harness.text import estimate_tokens
from tests.fakes import trials
from tests.models.answers import READ

PRICE = Price(input_usd_per_mtok=1.0, output_usd_per_mtok=10.0)
REQUEST = Request(
    messages=(Message(role="user", content="x" * 36),),
    sampling=Sampling(),
    task="l1/add",
    arm="without_skill",
    repeat=0,
)


def reply(
    tokens: tuple[int | None, int | None] = (10, 20), cost: float | None = 0.5, **more: object
) -> Reply:
    """A reply that reports what it took."""
    usage = Usage(input_tokens=tokens[0], output_tokens=tokens[1])
    return trials.reply(cost=cost).model_copy(update={"usage": usage} | more)


def fake(
    *replies: Reply | Exception, price: Price | None = PRICE, recorded: bool = False
) -> trials.FakeModel:
    """A model that gives these replies over and over."""
    said = itertools.cycle(replies)

    def answer(request: Request) -> Reply:
        one = next(said)
        if isinstance(one, Exception):
            raise one
        return one

    model: Any = trials.FakeModel(answer, "acme/one")
    model.price, model.recorded = price, recorded
    return model


def student(meter: Meter) -> Spent:
    """What the student has spent."""
    return meter.spent_by_role["student"]


def test_everything_is_counted_by_role() -> None:
    """Calls, tokens and dollars; without limits nothing is refused."""
    meter = Meter()
    one, two = meter.wrap(fake(reply())), meter.wrap(fake(reply((1, 2), 0.25)), role="teacher")
    assert meter.spent_by_role == {}
    assert [one.complete(REQUEST).text for _ in range(2)] == ["no files"] * 2
    two.complete(REQUEST)
    assert meter.spent_by_role == {
        "student": Spent(calls=2, input_tokens=20, output_tokens=40, cost_usd=1.0, tokens=60),
        "teacher": Spent(calls=1, input_tokens=1, output_tokens=2, cost_usd=0.25, tokens=3),
    }
    assert Spent.model_validate_json(student(meter).model_dump_json()) == student(meter)


@pytest.mark.parametrize(
    ("limits", "calls", "message"),
    [
        (Limits(max_calls=3), 3, "call budget: 3 of 3 calls used"),
        (Limits(max_tokens=60), 2, "token budget: 60 of 60 tokens used"),
        (Limits(max_tokens=61), 3, "token budget: 90 of 61 tokens used"),
        (Limits(max_cost_usd=1.2), 3, r"cost budget: \$1.5000 of \$1.2000 used"),
    ],
)
def test_the_next_call_is_refused_where_a_limit_is_reached(limits: Limits, calls: int, message: str) -> None:
    """The call that reaches it is answered; later ones, of any model, are not asked."""
    inner, meter = fake(reply()), Meter(limits)
    model = meter.wrap(inner)
    for _ in range(calls):
        model.complete(REQUEST)
    for refused in (model, model, meter.wrap(fake(reply()), role="teacher")):
        with pytest.raises(BudgetSpent, match=f"^{message}$"):
            refused.complete(REQUEST)
    assert len(inner.asked) == calls == student(meter).calls


def test_unknown_tokens_are_estimated_and_marked() -> None:
    """A server that does not count is charged by the length of prompt, text and calls."""
    call = ToolCall(id="t", name="n", arguments="y" * 36)
    meter = Meter(Limits(max_tokens=30))
    model = meter.wrap(fake(reply((None, None), None, text="z" * 36, tool_calls=(call,))))
    model.complete(REQUEST)
    assert student(meter) == Spent(
        calls=1, input_tokens=None, output_tokens=None, cost_usd=None, estimated_tokens=30, tokens=30
    )
    with pytest.raises(BudgetSpent, match=r"30 of 30 tokens used \(30 of them estimated\)"):
        model.complete(REQUEST)


def test_tools_and_thinking_are_part_of_the_prompt() -> None:
    """Both are paid for like any other input."""
    thought = Message(role="assistant", content="", thinking=(Thinking(block={"reasoning": "hm " * 1000}),))
    for more in ({"tools": (READ,)}, {"messages": (*REQUEST.messages, thought)}):
        meter = Meter()
        meter.wrap(fake(reply((None, 0)))).complete(REQUEST.model_copy(update=more))
        assert student(meter).estimated_tokens > estimate_tokens("x" * 36)


def test_an_unknown_cost_counts_as_estimated_against_the_limit() -> None:
    """The price is known, a count is not: the limit is kept by an estimate, and the sum is unknown."""
    meter = Meter(Limits(max_cost_usd=0.0004))
    model = meter.wrap(fake(reply((100, 30), None)))
    model.complete(REQUEST)
    assert student(meter).cost_usd is None
    with pytest.raises(BudgetSpent, match=r"\$0.0004 of \$0.0004 used \(in part estimated\)"):
        model.complete(REQUEST)


def test_replayed_and_refused_replies_cost_nothing() -> None:
    """A recording was paid for long ago, and a prompt that is too long is refused unread; both are calls."""
    meter = Meter(Limits(max_tokens=1, max_cost_usd=0.01))
    model = meter.wrap(
        fake(reply(recorded=True), reply((None, None), None, text="", stop="overflow"), reply())
    )
    for _ in range(3):
        model.complete(REQUEST)
    assert student(meter) == Spent(calls=3, input_tokens=10, output_tokens=20, cost_usd=0.5, tokens=30)


def test_a_recording_is_held_to_calls_only() -> None:
    """It needs no price, and goes on when all money is spent."""
    meter = Meter(Limits(max_calls=2, max_tokens=0, max_cost_usd=0))
    model = meter.wrap(fake(reply(recorded=True), price=None, recorded=True))
    for _ in range(2):
        model.complete(REQUEST)
    with pytest.raises(BudgetSpent, match="call budget"):
        model.complete(REQUEST)


def test_a_limit_in_dollars_needs_a_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one the user is told before the first call, and may write it down or limit tokens."""
    meter, unpriced = Meter(Limits(max_cost_usd=1)), fake(reply(), price=None)
    with pytest.raises(
        UsageError, match=r"acme/one: its price is unknown.*LIFTBENCH_PRICES.*--max-total-tokens"
    ):
        meter.wrap(unpriced)
    Meter(Limits(max_tokens=1)).wrap(unpriced)
    prices = tmp_path / "prices.toml"
    prices.write_text('["acme/one"]\ninput_usd_per_mtok = 1\noutput_usd_per_mtok = 2\n')
    monkeypatch.setenv("LIFTBENCH_PRICES", str(prices))
    assert meter.wrap(unpriced).complete(REQUEST).text == "no files"


def test_a_call_that_fails_is_counted_and_holds_nothing_back() -> None:
    """The failure passes through; what was reserved for it is free again."""
    meter = Meter(Limits(max_calls=2, max_tokens=11))
    model = meter.wrap(fake(ProviderError("down"), reply()))
    with pytest.raises(ProviderError, match="down"):
        model.complete(REQUEST)
    assert student(meter) == Spent(calls=1)
    assert model.complete(REQUEST).text == "no files"


def test_a_limit_on_calls_is_exact_from_many_threads() -> None:
    """No race lets one call too many through, and none is lost."""
    inner, meter = fake(reply()), Meter(Limits(max_calls=50))
    model = meter.wrap(inner)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(model.complete, REQUEST) for _ in range(160)]
    assert sum(isinstance(call.exception(), BudgetSpent) for call in asked) == 110
    assert len(inner.asked) == 50
    assert student(meter) == Spent(calls=50, input_tokens=500, output_tokens=1000, cost_usd=25.0, tokens=1500)


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

    def slow(request: Request) -> Reply:
        begun.release()
        go.wait()
        return reply()

    inner: Any = trials.FakeModel(slow, "acme/one")
    inner.price = PRICE
    model = Meter(limits).wrap(inner)
    with ThreadPoolExecutor(3) as pool:
        under_way = [pool.submit(model.complete, REQUEST) for _ in range(3)]
        for _ in under_way:
            begun.acquire()
        try:
            with pytest.raises(BudgetSpent, match=message):
                model.complete(REQUEST)
        finally:
            go.set()
        assert [call.result().text for call in under_way] == ["no files"] * 3
