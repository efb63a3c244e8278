"""What a run asks of its models, counted and held to limits.

No call begins once a limit is reached. Calls under way are never cut off, so what is spent may exceed a
limit on tokens or dollars by what those calls cost, and by no more; what their prompts are estimated to
cost is reserved while they run.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field

from pydantic import Field

from harness.errors import BudgetSpent, UsageError
from harness.models import Model
from harness.models.prices import PRICES_VARIABLE, Price, find_price
from harness.records import Record, Reply, Request
from harness.text import estimate_tokens


class Limits(Record):
    """Where to stop; None is no limit."""

    max_tokens: int | None = Field(default=None, ge=0)
    """Input and output together, cached input included."""
    max_cost_usd: float | None = Field(default=None, ge=0)
    max_calls: int | None = Field(default=None, ge=0)


class Spent(Record):
    """What was spent so far. Replayed replies are calls, and cost nothing."""

    calls: int = 0
    """Begun, those that failed included; an SDK's retries are within one call."""
    input_tokens: int | None = 0
    """As reported; None where any reply came without."""
    output_tokens: int | None = 0
    cost_usd: float | None = 0.0
    """None where the cost of any reply is unknown."""
    estimated_tokens: int = 0
    """Charged by the length of the text, for replies without a count. Hidden reasoning is not in it."""
    tokens: int = 0
    """Charged against the limit: reported and estimated ones."""

    def __add__(self, other: Spent) -> Spent:
        """Both together; what is unknown of either is unknown of both."""

        def both(one: float | None, two: float | None) -> float | None:
            return None if one is None or two is None else one + two

        return Spent.model_validate(
            {name: both(getattr(self, name), getattr(other, name)) for name in Spent.model_fields}
        )


@dataclass
class _Account:
    """What one role has spent."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    estimated_tokens: int = 0
    cost_usd: float = 0.0
    unknown: set[str] = field(default_factory=set)
    """Fields of which a part was not reported; `cost_usd` then holds estimates."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens + self.estimated_tokens

    def charge(self, reply: Reply, prompt_tokens: int, price: Price | None) -> None:
        """Add a reply; `prompt_tokens` stands in where its prompt was not counted."""
        if reply.recorded or reply.stop == "overflow":
            # Not asked now; or refused unread, which providers do not charge.
            return
        counts = {"input_tokens": reply.usage.input_tokens, "output_tokens": reply.usage.output_tokens}
        written = "".join((reply.text, *(call.arguments for call in reply.tool_calls)))
        estimates = {"input_tokens": prompt_tokens, "output_tokens": estimate_tokens(written)}
        for name, known in counts.items():
            if known is None:
                self.unknown.add(name)
                self.estimated_tokens += estimates[name]
            else:
                setattr(self, name, getattr(self, name) + known)
        if reply.cost_usd is None:
            self.unknown.add("cost_usd")
            used = {name: estimates[name] if known is None else known for name, known in counts.items()}
            self.cost_usd += _estimate_usd(price, used["input_tokens"], used["output_tokens"])
        else:
            self.cost_usd += reply.cost_usd

    def spent(self) -> Spent:
        """As a record."""
        sums = {name: getattr(self, name) for name in ("input_tokens", "output_tokens", "cost_usd")}
        reported = sums | dict.fromkeys(self.unknown)
        return Spent.model_validate(
            {"calls": self.calls, "estimated_tokens": self.estimated_tokens, "tokens": self.tokens} | reported
        )


class Meter:
    """Counts the calls of every model that it wraps; safe for threads."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._lock = threading.Lock()
        self._accounts: dict[str, _Account] = {}
        self._reserved_tokens = 0
        self._reserved_usd = 0.0

    def wrap(self, model: Model, role: str = "student") -> MeteredModel:
        """The same model, counted. Raises UsageError where a limit in dollars cannot be kept with it."""
        price = getattr(model, "price", None) or find_price(model.name, listed=False)
        free = bool(getattr(model, "recorded", False))
        if self._limits.max_cost_usd is not None and price is None and not free:
            raise UsageError(
                f"model {model.name}: its price is unknown, so --max-cost cannot be kept. Write the price "
                f"into the file that {PRICES_VARIABLE} names, or limit tokens with --max-total-tokens"
            )
        return MeteredModel(self, model, role, price)

    @property
    def spent(self) -> Spent:
        """By all roles together."""
        with self._lock:
            return self._sum().spent()

    @property
    def spent_by_role(self) -> dict[str, Spent]:
        """By each role that has called."""
        with self._lock:
            return {role: account.spent() for role, account in sorted(self._accounts.items())}

    def call(self, model: Model, role: str, price: Price | None, request: Request) -> Reply:
        """The model's reply, charged to a role. Raises BudgetSpent instead of asking."""
        free = bool(getattr(model, "recorded", False))
        prompt_tokens = _prompt_tokens(request)
        tokens = 0 if free else prompt_tokens
        usd = _estimate_usd(price, tokens, 0)
        with self._lock:
            self._refuse_if_spent(free)
            self._accounts.setdefault(role, _Account()).calls += 1
            self._reserved_tokens += tokens
            self._reserved_usd += usd
        reply: Reply | None = None
        try:
            reply = model.complete(request)
        finally:
            with self._lock:
                self._reserved_tokens -= tokens
                self._reserved_usd -= usd
                if reply is not None:
                    self._accounts[role].charge(reply, prompt_tokens, price)
        return reply

    def _refuse_if_spent(self, free: bool) -> None:
        limits, total = self._limits, self._sum()
        if limits.max_calls is not None and total.calls >= limits.max_calls:
            raise BudgetSpent(f"call budget: {total.calls:,} of {limits.max_calls:,} calls used")
        if free:
            return
        if limits.max_tokens is not None and total.tokens + self._reserved_tokens >= limits.max_tokens:
            notes = [f"{total.estimated_tokens:,} of them estimated"] if total.estimated_tokens else []
            notes += [f"about {self._reserved_tokens:,} more under way"] if self._reserved_tokens else []
            used = f"{total.tokens:,} of {limits.max_tokens:,} tokens used"
            raise BudgetSpent(f"token budget: {used}{_in_brackets(notes)}")
        if limits.max_cost_usd is not None and total.cost_usd + self._reserved_usd >= limits.max_cost_usd:
            notes = ["in part estimated"] if "cost_usd" in total.unknown else []
            notes += [f"about ${self._reserved_usd:.4f} more under way"] if self._reserved_usd else []
            used = f"${total.cost_usd:.4f} of ${limits.max_cost_usd:.4f} used"
            raise BudgetSpent(f"cost budget: {used}{_in_brackets(notes)}")

    def _sum(self) -> _Account:
        total = _Account()
        for account in self._accounts.values():
            for name in ("calls", "input_tokens", "output_tokens", "estimated_tokens", "cost_usd"):
                setattr(total, name, getattr(total, name) + getattr(account, name))
            total.unknown |= account.unknown
        return total


class MeteredModel:
    """A model whose calls a meter counts."""

    def __init__(self, meter: Meter, inner: Model, role: str, price: Price | None) -> None:
        self._meter = meter
        self._inner = inner
        self._role = role
        self.price = price
        self.name = inner.name
        self.recorded = bool(getattr(inner, "recorded", False))

    def complete(self, request: Request) -> Reply:
        """The inner model's reply, charged. Raises BudgetSpent where a limit was reached before."""
        return self._meter.call(self._inner, self._role, self.price, request)


def _prompt_tokens(request: Request) -> int:
    """About how many tokens a prompt has."""
    told = [m.content + "".join(call.arguments for call in m.tool_calls) for m in request.messages]
    told += [json.dumps(part.block, ensure_ascii=False) for m in request.messages for part in m.thinking]
    tools = [json.dumps(tool.model_dump(mode="json")) for tool in request.tools]
    return estimate_tokens("".join(told + tools))


def _estimate_usd(price: Price | None, input_tokens: int, output_tokens: int) -> float:
    """At the price of input that was not cached: an upper bound, but for prompts that cost more by length."""
    if price is None:
        return 0.0
    return (input_tokens * price.input_usd_per_mtok + output_tokens * price.output_usd_per_mtok) / 1e6


def _in_brackets(notes: list[str]) -> str:
    return f" ({', '.join(notes)})" if notes else ""
