"""A model that costs something, for tests of budgets."""

from __future__ import annotations

import threading

from harness.models.prices import Price
from harness.records import Message, Reply, Request, Sampling, Usage

PRICE = Price(input_usd_per_mtok=1.0, output_usd_per_mtok=10.0)
REQUEST = Request(
    messages=(Message(role="user", content="x" * 36),),
    sampling=Sampling(),
    task="l1/add",
    arm="without_skill",
    repeat=0,
)


def reply(
    tokens: tuple[int | None, int | None] = (10, 20),
    cost: float | None = 0.5,
    text: str = "a project",
    **more: object,
) -> Reply:
    """A reply that reports what it took."""
    fields = {
        "text": text,
        "stop": "end",
        "model_label": "m",
        "created": "2026-11-22T08:00:00+00:00",
        "usage": Usage(input_tokens=tokens[0], output_tokens=tokens[1]),
        "cost_usd": cost,
    }
    return Reply.model_validate(fields | more)


class Fake:
    """A model that says what it was told to, and counts."""

    name = "acme/one"

    def __init__(self, *replies: Reply | Exception, price: Price | None = PRICE) -> None:
        self.replies = list(replies)
        self.price = price
        self.calls = 0
        self._lock = threading.Lock()

    def complete(self, request: Request) -> Reply:
        with self._lock:
            said = self.replies[self.calls % len(self.replies)]
            self.calls += 1
        if isinstance(said, Exception):
            raise said
        return said
