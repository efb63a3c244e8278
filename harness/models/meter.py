"""What a run asks of its models, counted and held to limits.

No call begins once a limit is reached. Calls under way are never cut off, so what is spent may exceed a
limit on tokens or dollars by what those calls cost, and by no more; what their prompts are estimated to
cost is reserved while they run.
"""

from __future__ import annotations

import json
import threading

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


class _Account(Record):
    """What one role, or one reply, is charged."""

    spent: Spent = Spent()
    charged_usd: float = 0.0
    """With an estimate for every reply whose cost is unknown."""

    def __add__(self, other: _Account) -> _Account:
        return _Account(spent=self.spent + other.spent, charged_usd=self.charged_usd + other.charged_usd)


def _charge(reply: Reply, prompt_tokens: int, price: Price | None) -> _Account:
    """What a reply is charged; `prompt_tokens` stands in where its prompt was not counted."""
    if reply.recorded or reply.stop == "overflow":
        # Not asked now; or refused unread, which providers do not charge.
        return _Account()
    usage = reply.usage
    written = "".join((reply.text, *(call.arguments for call in reply.tool_calls)))
    estimated_input = prompt_tokens if usage.input_tokens is None else 0
    estimated_output = estimate_tokens(written) if usage.output_tokens is None else 0
    input_tokens = (usage.input_tokens or 0) + estimated_input
    output_tokens = (usage.output_tokens or 0) + estimated_output
    spent = Spent(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=reply.cost_usd,
        estimated_tokens=estimated_input + estimated_output,
        tokens=input_tokens + output_tokens,
    )
    estimated_usd = _estimate_usd(price, input_tokens, output_tokens)
    return _Account(spent=spent, charged_usd=estimated_usd if reply.cost_usd is None else reply.cost_usd)


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
        if self._limits.max_cost_usd is not None and price is None and not _is_recorded(model):
            raise UsageError(
                f"model {model.name}: its price is unknown, so --max-cost cannot be kept. Write the price "
                f"into the file that {PRICES_VARIABLE} names, or limit tokens with --max-total-tokens"
            )
        return MeteredModel(self, model, role, price)

    @property
    def spent_by_role(self) -> dict[str, Spent]:
        """By each role that has called."""
        with self._lock:
            return {role: account.spent for role, account in sorted(self._accounts.items())}

    def call(self, model: Model, role: str, price: Price | None, request: Request) -> Reply:
        """The model's reply, charged to a role. Raises BudgetSpent instead of asking."""
        free = _is_recorded(model)
        prompt_tokens = _prompt_tokens(request)
        tokens = 0 if free else prompt_tokens
        usd = _estimate_usd(price, tokens, 0)
        with self._lock:
            self._refuse_if_spent(free)
            self._add(role, _Account(spent=Spent(calls=1)))
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
                    self._add(role, _charge(reply, prompt_tokens, price))
        return reply

    def _add(self, role: str, account: _Account) -> None:
        self._accounts[role] = self._accounts.get(role, _Account()) + account

    def _refuse_if_spent(self, free: bool) -> None:
        limits, total = self._limits, sum(self._accounts.values(), _Account())
        spent, usd = total.spent, total.charged_usd
        if limits.max_calls is not None and spent.calls >= limits.max_calls:
            raise BudgetSpent(f"call budget: {spent.calls:,} of {limits.max_calls:,} calls used")
        if free:
            return
        if limits.max_tokens is not None and spent.tokens + self._reserved_tokens >= limits.max_tokens:
            notes = [f"{spent.estimated_tokens:,} of them estimated"] if spent.estimated_tokens else []
            notes += [f"about {self._reserved_tokens:,} more under way"] if self._reserved_tokens else []
            used = f"{spent.tokens:,} of {limits.max_tokens:,} tokens used"
            raise BudgetSpent(f"token budget: {used}{_in_brackets(notes)}")
        if limits.max_cost_usd is not None and usd + self._reserved_usd >= limits.max_cost_usd:
            notes = ["in part estimated"] if spent.cost_usd is None else []
            notes += [f"about ${self._reserved_usd:.4f} more under way"] if self._reserved_usd else []
            used = f"${usd:.4f} of ${limits.max_cost_usd:.4f} used"
            raise BudgetSpent(f"cost budget: {used}{_in_brackets(notes)}")


class MeteredModel:
    """A model whose calls a meter counts."""

    def __init__(self, meter: Meter, inner: Model, role: str, price: Price | None) -> None:
        self._meter = meter
        self._inner = inner
        self._role = role
        self.price = price
        self.name = inner.name
        self.recorded = _is_recorded(inner)

    def complete(self, request: Request) -> Reply:
        """The inner model's reply, charged. Raises BudgetSpent where a limit was reached before."""
        return self._meter.call(self._inner, self._role, self.price, request)


def _is_recorded(model: Model) -> bool:
    return bool(getattr(model, "recorded", False))


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
